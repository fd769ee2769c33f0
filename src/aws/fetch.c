#include "aws/fetch.h"

#include <poll.h>

#include "base/clock.h"

enum { LONGEST_WAIT_MS = 1000 };

struct fetching {
	bool over;
	int status;
	struct buf *body;
	struct error *err;
};

static void take_answer(void *tag, const struct http_answer *answer)
{
	struct fetching *f = tag;

	f->over = true;
	f->status = answer->status;
	if (answer->status == 0)
		*f->err = answer->why;
	else
		buf_add_slice(f->body, answer->body);
}

/* False: it was interrupted. */
static bool wait_for(struct http *h, int interrupt_fd)
{
	struct pollfd fds[2] = { { .fd = interrupt_fd, .events = POLLIN } };
	int64_t deadline, now = clock_ms();

	fds[1].fd = http_pollfd(h, &fds[1].events, &deadline);
	poll(fds, 2, (int)MAX(0, MIN(deadline - now, LONGEST_WAIT_MS)));
	if (fds[0].revents)
		return false;
	http_pump(h, clock_ms());
	return true;
}

bool aws_fetch(const struct http_options *options, const struct http_request *request, int interrupt_fd, int *ret_status,
	       struct buf *ret_body, struct error *err)
{
	struct fetching f = { .body = ret_body, .err = err };
	struct http *h;
	bool ok;

	if (!http_new(options, take_answer, &h, err))
		return false;
	ok = http_start(h, request, &f, err);
	while (ok && !f.over)
		if (!wait_for(h, interrupt_fd))
			ok = error_set(err, ERROR_LOST, "interrupted");
	http_free(h);
	if (!ok || f.status == 0)
		return false;
	*ret_status = f.status;
	return true;
}
