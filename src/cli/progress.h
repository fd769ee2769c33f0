/* A bar on standard error that shows how far a command is, on a terminal only. One thread. */
#ifndef POSTRIDER_CLI_PROGRESS_H
#define POSTRIDER_CLI_PROGRESS_H

#include <stdint.h>

struct progress {
	const char *doing;              /* "putting back" */
	int64_t of;                     /* how many there are */
	int64_t shown_ms;               /* when it was last drawn; 0: never */
};

void progress_show(struct progress *p, int64_t done);
/* Takes the bar away. */
void progress_end(struct progress *p);

#endif
