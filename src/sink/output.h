/* A place that lines are appended to: standard output, a file, a named pipe. One per target, shared by workers.
 *
 * Guarantees: lines of one write stay together; a line that an error tore is closed with a line feed before anything
 * follows it; a file that was renamed or removed is opened again under its path within a second, so log rotation needs
 * no signal. Writing never waits for a slow reader. */
#ifndef POSTRIDER_SINK_OUTPUT_H
#define POSTRIDER_SINK_OUTPUT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/backoff.h"
#include "base/error.h"
#include "base/slice.h"

struct output {
	const char *path;               /* "-" : standard output; belongs to the settings */
	pthread_mutex_t lock;           /* guards all below */
	int fd;                         /* -1: not open now */
	bool regular;                   /* a file: never full for a moment, and watched for rotation */
	dev_t dev;
	ino_t ino;
	int64_t look_at_ms;             /* when to compare path and descriptor again */
	bool torn;                      /* the last byte is not a line feed */
	struct backoff backoff;
	int64_t retry_at_ms;            /* after a failure */
	const void *writer;             /* who is in the middle of its lines, waiting for a slow reader */
};

/* Whole lines on their way; `done` of their bytes are written. */
struct output_lines {
	struct slice text;
	size_t done;
};

enum output_state {
	OUTPUT_DONE,                    /* all written: handed to the kernel, not synced to disk */
	OUTPUT_WAITS,                   /* begun; call again with the same lines when output_fd is writable */
	OUTPUT_NOT_NOW,                 /* nothing written; try again at *ret_again_ms */
	OUTPUT_FAILED,                  /* `err` is set; `done` says how far it came, and it is over */
};

/* ERROR_CONFIG when the path cannot be opened for a reason that stays. One that may pass (a full disk) is no error. */
bool output_open(struct output *o, const char *path, struct error *err);
void output_close(struct output *o);

/* `writer` names the caller. */
enum output_state output_write(struct output *o, const void *writer, struct output_lines *lines, int64_t now_ms,
			       int64_t *ret_again_ms, struct error *err);
/* Gives up lines that wait. */
void output_abandon(struct output *o, const void *writer, const struct output_lines *lines);
/* Only for a writer that waits. */
int output_fd(const struct output *o);
/* Is it open? If not, try now. */
bool output_check(struct output *o, struct error *err);

#endif
