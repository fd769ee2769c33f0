#include "cli/screen.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/mem.h"

#define OPEN "\033[?1049h\033[?25l"     /* the alternate screen, without a cursor */
#define CLOSE "\033[?25h\033[?1049l"
#define HOME "\033[H"
#define BOLD "\033[1m"
#define PLAIN "\033[m"
#define REST_OF_LINE "\033[K"
#define REST_OF_SCREEN "\033[J"

enum { ROWS = 24, COLUMNS = 80, PAGE_MAX = 1 << 20 };

/* --- a page ----------------------------------------------------------------------------------------------------------- */

/* C0, DEL, and C1 in their form of two bytes: what a terminal would obey. */
static bool is_control(const char *p, size_t len)
{
	unsigned char first = (unsigned char)p[0];

	return first < 0x20 || first == 0x7f || (len == 2 && first == 0xc2 && (unsigned char)p[1] < 0xa0);
}

static void add_line(struct buf *out, const char *line, size_t len, size_t columns)
{
	bool heading = len > 0 && line[0] != ' ';
	size_t used = 0;

	buf_add_str(out, heading ? BOLD : "");
	for (size_t i = 0; i < len && used < columns; used++) {
		size_t size = utf8_length((const unsigned char *)line + i, len - i);

		if (size == 0 || is_control(line + i, size))
			buf_add_char(out, '?');
		else
			buf_add(out, line + i, size);
		i += MAX(size, 1);
	}
	buf_add_str(out, heading ? PLAIN : "");
	/* Behind the last column the cursor still stands on it. */
	buf_add_str(out, used < columns ? REST_OF_LINE : "");
}

static size_t count_lines(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

void screen_render(struct buf *out, const char *text, size_t rows, size_t columns)
{
	size_t count = count_lines(text), left = count;

	buf_add_str(out, HOME);
	for (size_t row = 1; *text; row++, left--) {
		size_t len = strcspn(text, "\n");

		if (row == rows && left > 1) {
			_cleanup_(mem_freep) char *more = mem_printf("  … %zu more lines", left);

			add_line(out, more, strlen(more), columns);
			return;
		}
		add_line(out, text, len, columns);
		/* Behind the last one it would move the page. */
		buf_add_str(out, left > 1 ? "\r\n" : "");
		text += len + (text[len] == '\n');
	}
	/* For the same reason not on the last row, where there is nothing to clear either. */
	buf_add_str(out, count < rows ? "\r\n" REST_OF_SCREEN : "");
}

/* --- the terminal ----------------------------------------------------------------------------------------------------- */

bool screen_is_there(void)
{
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

static bool write_all(const char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t n = write(STDOUT_FILENO, bytes, len);

		if (n <= 0)
			return false;
		bytes += n;
		len -= (size_t)n;
	}
	return true;
}

bool screen_open(struct screen *s)
{
	struct termios quiet;

	if (s->open)
		return true;
	if (tcgetattr(STDIN_FILENO, &s->before) != 0)
		return false;
	quiet = s->before;
	quiet.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	quiet.c_cc[VMIN] = 1;
	quiet.c_cc[VTIME] = 0;
	s->open = tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet) == 0 && write_all(OPEN, strlen(OPEN));
	return s->open;
}

void screen_close(struct screen *s)
{
	if (!s->open)
		return;
	s->open = false;
	write_all(CLOSE, strlen(CLOSE));
	tcsetattr(STDIN_FILENO, TCSADRAIN, &s->before);
}

bool screen_draw(const struct screen *s, const char *text)
{
	_cleanup_(buf_release) struct buf page = { .ceiling = PAGE_MAX };
	struct winsize size = { 0 };

	if (!s->open)
		return true;
	ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
	/* Some terminals do not know how large they are. */
	screen_render(&page, text, size.ws_row ? size.ws_row : ROWS, size.ws_col ? size.ws_col : COLUMNS);
	return write_all(page.data, page.len);
}
