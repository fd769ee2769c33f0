#include "sink/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"

enum {
	LOOK_INTERVAL_MS = 1000,        /* between two looks whether the file was rotated */
	BUSY_INTERVAL_MS = 10,          /* until another look whether the writer before us is through */
	RETRY_FIRST_MS = 200,
	RETRY_MAX_MS = 10000,
};

static bool is_stdout(const struct output *o)
{
	return strcmp(o->path, "-") == 0;
}

static const char *label(const struct output *o)
{
	return is_stdout(o) ? "standard output" : o->path;
}

/* Reasons that may pass; what else keeps a path from being opened needs a person. */
static bool may_pass(int number)
{
	static const int passing[] = { ENOSPC, EDQUOT, EIO, EMFILE, ENFILE, ENXIO, EINTR, ESTALE };

	for (size_t i = 0; i < ARRAY_SIZE(passing); i++)
		if (passing[i] == number)
			return true;
	return false;
}

static bool open_error(const struct output *o, int number, struct error *err)
{
	if (number == ENXIO) {
		error_set(err, ERROR_TRANSPORT, "could not open %s: nobody reads from this pipe", label(o));
		return error_hint(err, "start its reader");
	}
	error_set(err, may_pass(number) ? ERROR_TRANSPORT : ERROR_CONFIG, "could not open %s: %s", label(o),
		  strerror(number));
	return error_hint(err, "see the setting `path` of the sink, and who may write to the file and its directory");
}

/* A run that ended in the middle of a line may have left the file so. Where it cannot be read, it is taken as whole. */
static bool ends_torn(const char *path, off_t size)
{
	char last = '\n';
	ssize_t got _unused_;
	int fd;

	if (size == 0)
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	got = pread(fd, &last, 1, size - 1);
	close(fd);
	return last != '\n';
}

static void adopt(struct output *o, int fd, const struct stat *st)
{
	bool same = o->dev == st->st_dev && o->ino == st->st_ino;

	if (o->fd >= 0)
		close(o->fd);
	o->fd = fd;
	o->regular = S_ISREG(st->st_mode);
	o->dev = st->st_dev;
	o->ino = st->st_ino;
	/* Whoever opens a pipe again reads from its beginning. */
	o->torn = o->regular && ((same && o->torn) || (!is_stdout(o) && ends_torn(o->path, st->st_size)));
}

static bool open_path(struct output *o, struct error *err)
{
	/* Not blocking: a named pipe without a reader would keep us here. Files do not care. */
	int fd = is_stdout(o) ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3) :
				open(o->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0640);
	struct stat st;

	if (fd < 0)
		return open_error(o, errno, err);
	if (fstat(fd, &st) < 0) {
		int number = errno;

		close(fd);
		return open_error(o, number, err);
	}
	adopt(o, fd, &st);
	return true;
}

/* True when the path names another file than the one that is open, or none. */
static bool was_rotated(struct output *o, int64_t now_ms)
{
	struct stat st;

	if (!o->regular || is_stdout(o))
		return false;
	/* Removed: what we write now would be gone, so this one is asked each time. */
	if (fstat(o->fd, &st) == 0 && st.st_nlink == 0)
		return true;
	if (now_ms < o->look_at_ms)
		return false;
	o->look_at_ms = now_ms + LOOK_INTERVAL_MS;
	return stat(o->path, &st) < 0 || st.st_dev != o->dev || st.st_ino != o->ino;
}

/* Writes what fits now. 0: nothing does; -1: errno. */
static ssize_t write_some(const struct output *o, const char *p, size_t len)
{
	struct pollfd room = { .fd = o->fd, .events = POLLOUT };
	ssize_t n;

	/* Standard output may be a pipe that others share, so it stays blocking. A pipe that is writable has room for
	 * PIPE_BUF bytes; so many are written without waiting. */
	if (!o->regular) {
		len = MIN(len, PIPE_BUF);
		if (poll(&room, 1, 0) == 0)
			return 0;
	}
	do
		n = write(o->fd, p, len);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return 0;
	return n;
}

/* Ends the line that an error tore. 0: not now; -1: errno; else nothing is torn. */
static ssize_t mend(struct output *o)
{
	ssize_t n = o->torn ? write_some(o, "\n", 1) : 1;

	if (n > 0)
		o->torn = false;
	return n;
}

static enum output_state fail(struct output *o, const struct output_lines *lines, int64_t now_ms)
{
	o->writer = NULL;
	if (lines->done > 0)
		o->torn = lines->text.ptr[lines->done - 1] != '\n';
	o->retry_at_ms = now_ms + backoff_next(&o->backoff);
	/* A pipe whose reader left needs a new one, and a file may be on a new disk. */
	if (!is_stdout(o) && o->fd >= 0) {
		close(o->fd);
		o->fd = -1;
	}
	return OUTPUT_FAILED;
}

static enum output_state write_failed(struct output *o, const struct output_lines *lines, int64_t now_ms,
				      struct error *err)
{
	error_set(err, ERROR_TRANSPORT, "could not write to %s: %s", label(o), strerror(errno));
	return fail(o, lines, now_ms);
}

static enum output_state write_lines(struct output *o, const void *writer, struct output_lines *lines, int64_t now_ms,
				     struct error *err)
{
	while (lines->done < lines->text.len) {
		ssize_t n = write_some(o, lines->text.ptr + lines->done, lines->text.len - lines->done);

		if (n < 0)
			return write_failed(o, lines, now_ms, err);
		if (n == 0) {
			o->writer = writer;
			return OUTPUT_WAITS;
		}
		lines->done += (size_t)n;
	}
	o->writer = NULL;
	backoff_reset(&o->backoff);
	return OUTPUT_DONE;
}

static enum output_state begin_lines(struct output *o, const void *writer, struct output_lines *lines, int64_t now_ms,
				     int64_t *ret_again_ms, struct error *err)
{
	ssize_t mended;

	*ret_again_ms = now_ms + BUSY_INTERVAL_MS;
	if (o->writer)
		return OUTPUT_NOT_NOW;
	if (now_ms < o->retry_at_ms) {
		*ret_again_ms = o->retry_at_ms;
		return OUTPUT_NOT_NOW;
	}
	if ((o->fd < 0 || was_rotated(o, now_ms)) && !open_path(o, err))
		return fail(o, lines, now_ms);
	mended = mend(o);
	if (mended < 0)
		return write_failed(o, lines, now_ms, err);
	if (mended == 0)
		return OUTPUT_NOT_NOW;
	return write_lines(o, writer, lines, now_ms, err);
}

enum output_state output_write(struct output *o, const void *writer, struct output_lines *lines, int64_t now_ms,
			       int64_t *ret_again_ms, struct error *err)
{
	enum output_state state;

	pthread_mutex_lock(&o->lock);
	if (o->writer == writer)
		state = write_lines(o, writer, lines, now_ms, err);
	else
		state = begin_lines(o, writer, lines, now_ms, ret_again_ms, err);
	pthread_mutex_unlock(&o->lock);
	return state;
}

void output_abandon(struct output *o, const void *writer, const struct output_lines *lines)
{
	pthread_mutex_lock(&o->lock);
	if (o->writer == writer) {
		o->writer = NULL;
		o->torn = o->torn || (lines->done > 0 && lines->text.ptr[lines->done - 1] != '\n');
	}
	pthread_mutex_unlock(&o->lock);
}

int output_fd(const struct output *o)
{
	return o->fd;
}

bool output_check(struct output *o, struct error *err)
{
	bool open;

	pthread_mutex_lock(&o->lock);
	open = o->fd >= 0 || open_path(o, err);
	pthread_mutex_unlock(&o->lock);
	return open;
}

bool output_open(struct output *o, const char *path, struct error *err)
{
	struct error why;

	*o = (struct output){ .path = path, .fd = -1 };
	pthread_mutex_init(&o->lock, NULL);
	backoff_init(&o->backoff, RETRY_FIRST_MS, RETRY_MAX_MS, random_seed());
	if (open_path(o, &why) || why.kind == ERROR_TRANSPORT)
		return true;
	*err = why;
	pthread_mutex_destroy(&o->lock);
	return false;
}

void output_close(struct output *o)
{
	if (o->fd >= 0)
		close(o->fd);
	o->fd = -1;
	pthread_mutex_destroy(&o->lock);
}
