/* The sink `stdout`: JSON lines to standard output, a file or a named pipe.
 *
 * An event is acknowledged when write(2) has taken its whole line. That hands it to the kernel: it survives the death
 * of the relay, not that of the machine. A slow reader makes submit take nothing; an error (full disk, reader gone) fails
 * the lines that were not written and opens a pause that grows. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/finding.h"
#include "base/mem.h"
#include "sink/breaker.h"
#include "sink/json_line.h"
#include "sink/outcome.h"
#include "sink/output.h"
#include "sink/sink.h"

enum {
	BATCH_EVENTS = 1000,
	BATCH_BYTES = 1 << 20,          /* no further line is begun past this */
	KEPT_BYTES = 4 << 20,           /* a buffer that had to grow larger is given back */
};
#define LINE_CEILING ((size_t)1 << 31)

struct sink_target {
	struct output output;
	struct breaker breaker;
};

struct sink {
	struct sink_target *target;
	struct outcomes outcomes;
	struct event *taken[BATCH_EVENTS];
	size_t ends[BATCH_EVENTS];      /* where the line of each ends in `text` */
	uint32_t count;                 /* more than 0 between calls: they wait for a slow reader */
	struct buf text;
	struct output_lines lines;
	int64_t again_ms;               /* when to try after "not now" */
};

static bool stdout_target_open(const struct sink_config *config, struct sink_target **ret, struct error *err)
{
	_cleanup_(mem_freep) struct sink_target *t = mem_new(struct sink_target);

	/* A reader that goes away is an outage to report, not a reason to die. */
	signal(SIGPIPE, SIG_IGN);
	if (!output_open(&t->output, config->std.path, err))
		return false;
	breaker_init(&t->breaker);
	*ret = TAKE_PTR(t);
	return true;
}

static void stdout_target_close(struct sink_target *t)
{
	if (!t)
		return;
	output_close(&t->output);
	breaker_release(&t->breaker);
	free(t);
}

static struct breaker *stdout_breaker(struct sink_target *t)
{
	return &t->breaker;
}

static void stdout_check(struct sink_target *t, const char *topic _unused_, struct finding_list *findings)
{
	struct error err;

	if (output_check(&t->output, &err))
		finding_add(findings, FINDING_OK, NULL, "path %s can be written", t->output.path);
	else
		finding_add_error(findings, &err);
}

static bool stdout_open(struct sink_target *t, const struct sink_env *env, struct sink **ret,
			struct error *err _unused_)
{
	struct sink *s = mem_new(struct sink);

	s->target = t;
	s->outcomes.box = env->outcomes;
	s->again_ms = CLOCK_NEVER;
	buf_init(&s->text, LINE_CEILING);
	*ret = s;
	return true;
}

/* Renders the line of one event behind the others; false, and nothing added, when it is too long for any line. */
static bool render(struct sink *s, struct event *ev)
{
	size_t before = s->text.len;

	buf_add_event_line(&s->text, ev);
	if (s->text.overflow) {
		s->text.len = before;
		s->text.overflow = false;
		return false;
	}
	s->taken[s->count] = ev;
	s->ends[s->count] = s->text.len;
	s->count++;
	return true;
}

/* Hands back what came of the batch: its written lines are delivered, the others failed. */
static void conclude(struct sink *s, const struct error *why)
{
	uint32_t delivered = 0;

	while (delivered < s->count && s->ends[delivered] <= s->lines.done)
		delivered++;
	outcomes_deliver(&s->outcomes, s->taken, delivered);
	outcomes_fail(&s->outcomes, s->taken + delivered, s->count - delivered, why);
	s->count = 0;
	s->lines = (struct output_lines){ 0 };
	if (s->text.room > KEPT_BYTES)
		buf_release(&s->text);
	buf_clear(&s->text);
}

static void stdout_close(struct sink *s)
{
	struct error why;

	if (!s)
		return;
	output_abandon(&s->target->output, s, &s->lines);
	error_set(&why, ERROR_LOST, "the sink was closed before its reader took the lines");
	conclude(s, &why);
	buf_release(&s->text);
	free(s);
}

static enum output_state write_batch(struct sink *s, int64_t now_ms)
{
	struct error why = { 0 };
	enum output_state state = output_write(&s->target->output, s, &s->lines, now_ms, &s->again_ms, &why);

	if (state != OUTPUT_NOT_NOW)
		s->again_ms = CLOCK_NEVER;
	if (state == OUTPUT_DONE)
		breaker_close(&s->target->breaker);
	else if (state == OUTPUT_FAILED)
		breaker_open(&s->target->breaker, &why);
	if (state == OUTPUT_DONE || state == OUTPUT_FAILED)
		conclude(s, &why);
	return state;
}

static uint32_t refuse_first(struct sink *s, struct event *const events[])
{
	struct error why;

	error_set(&why, ERROR_REJECTED, "the event does not fit into one line of JSON");
	outcomes_fail(&s->outcomes, events, 1, &why);
	return 1;
}

static uint32_t stdout_submit(struct sink *s, struct event *const events[], uint32_t n)
{
	int64_t now_ms = clock_ms();
	uint32_t taken;

	if (n == 0 || s->count > 0 || (s->again_ms != CLOCK_NEVER && now_ms < s->again_ms) ||
	    outcomes_unread(&s->outcomes))
		return 0;
	for (uint32_t i = 0; i < MIN(n, BATCH_EVENTS) && s->text.len < BATCH_BYTES; i++)
		if (!render(s, events[i]))
			break;
	if (s->count == 0)
		return refuse_first(s, events);
	taken = s->count;
	s->lines = (struct output_lines){ .text = { buf_str(&s->text), s->text.len } };
	if (write_batch(s, now_ms) == OUTPUT_NOT_NOW) {
		s->count = 0;
		buf_clear(&s->text);
		return 0;
	}
	return taken;
}

static int stdout_pollfd(const struct sink *s, short *ret_events, int64_t *ret_deadline_ms)
{
	*ret_deadline_ms = s->again_ms;
	if (s->count == 0)
		return -1;
	*ret_events = POLLOUT;
	return output_fd(&s->target->output);
}

static void stdout_pump(struct sink *s, int64_t now_ms)
{
	if (s->count > 0)
		write_batch(s, now_ms);
	else if (now_ms >= s->again_ms)
		s->again_ms = CLOCK_NEVER;
}

/* Where the line ends that is partly written, or where the next one begins when none is. */
static size_t end_of_begun(const struct sink *s, uint32_t *ret_lines)
{
	uint32_t lines = 0;
	size_t end = 0;

	while (lines < s->count && end < s->lines.done)
		end = s->ends[lines++];
	*ret_lines = lines;
	return end;
}

/* A line that is begun is completed, because what follows it in the file would be part of it otherwise. */
static void stdout_recall(struct sink *s)
{
	struct error why;
	uint32_t begun;

	if (s->count == 0)
		return;
	error_set(&why, ERROR_LOST, "not written: the claim on its entity is gone");
	s->lines.text.len = end_of_begun(s, &begun);
	outcomes_fail(&s->outcomes, s->taken + begun, s->count - begun, &why);
	s->count = begun;
	if (s->lines.done == s->lines.text.len) {
		output_abandon(&s->target->output, s, &s->lines);
		conclude(s, NULL);
	}
}

extern const struct sink_driver sink_stdout;
const struct sink_driver sink_stdout = {
	.name = "stdout",
	.summary = "JSON lines to standard output, a file or a named pipe",
	.caps = SINK_KEEPS_ORDER | SINK_ONE_STREAM,
	.target_open = stdout_target_open,
	.target_close = stdout_target_close,
	.breaker = stdout_breaker,
	.check = stdout_check,
	.open = stdout_open,
	.close = stdout_close,
	.submit = stdout_submit,
	.pollfd = stdout_pollfd,
	.pump = stdout_pump,
	.recall = stdout_recall,
};
