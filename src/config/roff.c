#include "config/roff.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "config/wrap.h"

enum { COLUMNS = 78, TEXT_MAX = 64 * 1024 };

/* --- characters ------------------------------------------------------------------------------------------------------- */

/* The character of a well-formed sequence of `len` bytes. */
static uint32_t code_point(const char *p, size_t len)
{
	static const unsigned char first_bits[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
	uint32_t c = (unsigned char)*p & first_bits[len];

	for (size_t i = 1; i < len; i++)
		c = c << 6 | ((unsigned char)p[i] & 0x3f);
	return c;
}

/* Returns how many bytes it took. */
static size_t add_character(struct buf *b, const char *p, size_t left, bool literal)
{
	size_t len = utf8_length((const unsigned char *)p, left);

	if (len > 1)
		buf_printf(b, "\\[u%04X]", code_point(p, len));
	else if (*p == '\\')
		buf_add_str(b, "\\e");
	else if (*p == '-' && literal)
		buf_add_str(b, "\\-");
	else if (*p == '\n')
		buf_add_char(b, ' ');
	else
		buf_add_char(b, *p);
	return len > 1 ? len : 1;
}

/* A line that begins with one of these would be taken for a command. Any word may come to begin a line. */
static void shield(struct buf *b, char c)
{
	if (c == '.' || c == '\'')
		buf_add_str(b, "\\&");
}

static void add_literal(struct buf *b, const char *p, size_t len)
{
	for (size_t i = 0; i < len;) {
		if (i == 0 || p[i - 1] == ' ')
			shield(b, p[i]);
		i += add_character(b, p + i, len - i, true);
	}
}

/* --- inside a line ---------------------------------------------------------------------------------------------------- */

/* Length of what `mark` encloses at `p`, both marks included; 0: nothing. */
static size_t enclosed(const char *p, size_t left, const char *mark)
{
	size_t size = strlen(mark);
	const char *end;

	if (left <= 2 * size || strncmp(p, mark, size) != 0)
		return 0;
	end = memmem(p + size, left - size, mark, size);
	return end && end > p + size ? (size_t)(end - p) + size : 0;
}

/* [words](address): its length, or 0. */
static size_t link_at(const char *p, size_t left, size_t *ret_words)
{
	const char *middle, *end;

	if (*p != '[')
		return 0;
	middle = memmem(p, left, "](", 2);
	end = middle ? memchr(middle, ')', left - (size_t)(middle - p)) : NULL;
	if (!end || memchr(p + 1, '[', (size_t)(middle - p) - 1))
		return 0;
	*ret_words = (size_t)(middle - p) - 1;
	return (size_t)(end - p) + 1;
}

static void add_bold(struct buf *b, const char *p, size_t len)
{
	buf_add_str(b, "\\fB");
	add_literal(b, p, len);
	buf_add_str(b, "\\fR");
}

static size_t add_span(struct buf *b, const char *p, size_t left, bool in_flag)
{
	size_t words, len;

	if ((len = enclosed(p, left, "`")) > 0)
		add_bold(b, p + 1, len - 2);
	else if ((len = enclosed(p, left, "**")) > 0)
		add_bold(b, p + 2, len - 4);
	else if ((len = link_at(p, left, &words)) > 0)
		add_literal(b, p + 1, words);
	else
		len = add_character(b, p, left, in_flag);
	return len;
}

/* The hyphens of --dry-run are to be found and copied as such; those of other words are hyphens. */
static void add_prose(struct buf *b, const char *p, size_t len)
{
	bool in_flag = false;

	for (size_t i = 0; i < len;) {
		bool begins = i == 0 || strchr(" \n(\"", p[i - 1]);

		if (begins)
			shield(b, p[i]);
		in_flag = begins ? p[i] == '-' : in_flag && p[i] != ' ' && p[i] != '\n';
		i += add_span(b, p + i, len - i, in_flag);
	}
}

/* --- blocks ----------------------------------------------------------------------------------------------------------- */

struct writer {
	FILE *out;
	struct buf text;                /* of the paragraph that is being read */
	bool code;                      /* inside a fence */
	bool apart;                     /* a blank line was read: a paragraph begins */
};

static void flush(struct writer *w)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = TEXT_MAX };

	if (w->text.len == 0)
		return;
	add_prose(&b, w->text.data, w->text.len);
	wrap_text(w->out, "", COLUMNS, buf_str(&b));
	buf_clear(&w->text);
}

static void toggle_code(struct writer *w)
{
	flush(w);
	fputs(w->code ? ".fi\n.RE\n" : ".PP\n.RS 4\n.nf\n", w->out);
	w->code = !w->code;
}

static void write_code(struct writer *w, const char *line, size_t len)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = TEXT_MAX };

	add_literal(&b, line, len);
	fprintf(w->out, "%s\n", buf_str(&b));
}

/* "1. text": length of the number and its dot. */
static size_t number_at(const char *line)
{
	size_t digits = strspn(line, "0123456789");

	return digits > 0 && line[digits] == '.' && line[digits + 1] == ' ' ? digits + 1 : 0;
}

/* "word   text": length of the word. */
static size_t entry_at(const char *line)
{
	size_t len = strcspn(line, " \n");

	return len > 0 && islower((unsigned char)line[0]) && line[len] == ' ' && line[len + 1] == ' ' ? len : 0;
}

static void add_text(struct writer *w, const char *line, size_t len)
{
	while (len > 0 && *line == ' ') {
		line++;
		len--;
	}
	if (w->text.len > 0)
		buf_add_char(&w->text, '\n');
	buf_add(&w->text, line, len);
}

static void read_line(struct writer *w, const char *line, size_t len)
{
	size_t tag;

	if (len >= 3 && strncmp(line, "```", 3) == 0) {
		toggle_code(w);
	} else if (w->code) {
		write_code(w, line, len);
	} else if (len == 0) {
		flush(w);
		w->apart = true;
	} else if ((tag = number_at(line)) > 0) {
		flush(w);
		fprintf(w->out, ".IP %.*s 4\n", (int)tag, line);
		add_text(w, line + tag, len - tag);
	} else if ((tag = entry_at(line)) > 0) {
		flush(w);
		fprintf(w->out, ".TP 10\n\\fB%.*s\\fR\n", (int)tag, line);
		add_text(w, line + tag, len - tag);
	} else {
		if (w->apart && w->text.len == 0)
			roff_paragraph(w->out);
		add_text(w, line, len);
	}
	w->apart = len == 0;
}

void roff_text(FILE *out, const char *text)
{
	struct writer w = { .out = out, .text = { .ceiling = TEXT_MAX } };

	while (*text) {
		size_t len = strcspn(text, "\n");

		read_line(&w, text, len);
		text += len + (text[len] == '\n');
	}
	flush(&w);
	buf_release(&w.text);
}

/* --- the page --------------------------------------------------------------------------------------------------------- */

static void write_capitals(FILE *out, const char *text)
{
	for (; *text; text++)
		fputc(toupper((unsigned char)*text), out);
}

void roff_begin(FILE *out, const char *name, int section, const char *summary)
{
	fputs(".\\\" Written by `postrider help`. Do not edit.\n.TH ", out);
	write_capitals(out, name);
	/* Without a date: a version's page is the same whenever it is built. */
	fprintf(out, " %d \"\" \"postrider %s\"\n", section, POSTRIDER_VERSION);
	roff_heading(out, "Name");
	fprintf(out, "%s \\- %s\n", name, summary);
}

void roff_heading(FILE *out, const char *title)
{
	fputs(".SH ", out);
	write_capitals(out, title);
	fputc('\n', out);
}

void roff_subheading(FILE *out, const char *title)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = TEXT_MAX };

	add_prose(&b, title, strlen(title));
	fprintf(out, ".SS %s\n", buf_str(&b));
}

void roff_tag(FILE *out, const char *code, const char *rest)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = TEXT_MAX };

	add_bold(&b, code, strlen(code));
	if (rest[0]) {
		buf_add_char(&b, ' ');
		add_prose(&b, rest, strlen(rest));
	}
	fprintf(out, ".TP\n%s\n", buf_str(&b));
}

void roff_paragraph(FILE *out)
{
	fputs(".PP\n", out);
}

void roff_line_break(FILE *out)
{
	fputs(".br\n", out);
}
