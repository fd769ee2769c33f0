/* A terminal as one page that is drawn again and again, by the few sequences that every terminal of today knows. It has the
 * alternate screen, so that what was there before is there again afterwards. */
#ifndef POSTRIDER_CLI_SCREEN_H
#define POSTRIDER_CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

#include "base/buf.h"

struct screen {
	bool open;
	struct termios before;
};

/* Are there a keyboard and a screen? */
bool screen_is_there(void);
/* Keys come one by one and are not shown. The caller closes, whatever happens: nobody else gives the terminal back. */
bool screen_open(struct screen *s);
void screen_close(struct screen *s);            /* also of one that is not open */
/* Shows a page. False: the terminal is gone. */
bool screen_draw(const struct screen *s, const char *text);

/* The page as bytes for a terminal of this size: lines are cut, and what does not fit is counted in the last one; lines that
 * do not begin with a blank are headings. Nothing in the text can move the cursor. */
void screen_render(struct buf *out, const char *text, size_t rows, size_t columns);

#endif
