/* Texts of our tables as roff with the macros of man(7), which groff and mandoc both read. The output is ASCII.
 *
 * Texts are plain or a little Markdown: `code`, **bold**, [words](address), numbered lists, fenced code. Paragraphs have a
 * blank line between them. A line of one word, two blanks or more and a text begins an entry of a list of words; lines that
 * begin with blanks go on with it. */
#ifndef POSTRIDER_CONFIG_ROFF_H
#define POSTRIDER_CONFIG_ROFF_H

#include <stdio.h>

/* Title, NAME. */
void roff_begin(FILE *out, const char *name, int section, const char *summary);
void roff_heading(FILE *out, const char *title);        /* in capitals, as man pages have them */
void roff_subheading(FILE *out, const char *title);
/* The tag of an entry in a list; what it says follows. `code` is bold, `rest` as it is. */
void roff_tag(FILE *out, const char *code, const char *rest);
/* Any number of paragraphs and lists, behind a heading or a tag. */
void roff_text(FILE *out, const char *text);
void roff_paragraph(FILE *out);                         /* between two texts */
void roff_line_break(FILE *out);

#endif
