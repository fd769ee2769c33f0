/* `postrider top`: what `status` shows, live. The database is read by an errand, so that keys are heard while a server does
 * not answer. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/errand.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/screen.h"
#include "cli/status_text.h"
#include "cli/steering.h"
#include "cli/text_table.h"
#include "config/load.h"
#include "config/units.h"
#include "pg/conn.h"

enum { INTERVAL_MS = 2000, INTERVAL_MIN_MS = 100, TICK_MS = 1000, PAGE_MAX = 1 << 20 };

/* What one errand reads. It belongs to the errand's thread until that is over. */
struct reading {
	const struct config *config;
	struct errand errand;
	bool under_way;
	PGconn *conn;                   /* kept for the next one; NULL: to be connected */
	bool done;
	struct overview view;           /* when done */
	struct error why;               /* when not */
};

struct top {
	int64_t interval_ms;
	int64_t frames_left;            /* -1: without end */
	bool on_screen;
	struct screen screen;
	int signals;
	struct reading reading;
	struct overview view;           /* the last that could be read … */
	int64_t view_at_ms;             /* … and when; 0: none so far */
	struct error trouble;           /* why there is no newer one; ERROR_NONE: there is */
	struct rates rates;
	int64_t next_read_ms;
	bool ended;
	int exit_code;
};

/* --- reading ---------------------------------------------------------------------------------------------------------- */

static void read_overview(void *arg)
{
	struct reading *r = arg;

	r->done = (r->conn || pg_connect(&r->config->database, "top", r->errand.interrupt_fd, &r->conn, &r->why)) &&
		  overview_read(r->conn, r->config, &r->view, &r->why);
	/* Whatever went wrong, a new connection is without it. */
	if (!r->done)
		pg_closep(&r->conn);
}

static void start_reading(struct top *t)
{
	struct reading *r = &t->reading;

	r->done = false;
	r->view = (struct overview){ 0 };
	r->why = (struct error){ 0 };
	errand_start(&r->errand, read_overview, r, &r->why);
	r->under_way = true;
}

static void take_reading(struct top *t, int64_t now)
{
	struct reading *r = &t->reading;

	errand_end(&r->errand);
	r->under_way = false;
	t->next_read_ms = now + t->interval_ms;
	t->trouble = r->why;
	if (!r->done)
		return;
	t->trouble = (struct error){ 0 };
	overview_release(&t->view);
	t->view = r->view;
	t->view_at_ms = now;
	rates_add(&t->rates, now, t->view.workers);
}

/* --- showing ---------------------------------------------------------------------------------------------------------- */

static void write_head(const struct top *t, int64_t now, struct buf *out)
{
	time_t seconds = time(NULL);
	struct tm local;
	struct text_short age;
	char clock[16];

	localtime_r(&seconds, &local);
	strftime(clock, sizeof(clock), "%H:%M:%S", &local);
	buf_printf(out, "postrider %s   %s%s\n", POSTRIDER_VERSION, clock, t->on_screen ? "   q quits" : "");
	if (t->trouble.kind != ERROR_NONE)
		buf_printf(out, "The database cannot be read, and what follows is %s old: %s\n",
			   text_duration(&age, now - t->view_at_ms), t->trouble.message);
}

static void show(struct top *t, int64_t now)
{
	_cleanup_(buf_release) struct buf page = { .ceiling = PAGE_MAX };

	write_head(t, now, &page);
	status_write_live(&t->view, &t->rates, &page);
	if (t->on_screen) {
		t->ended |= !screen_draw(&t->screen, buf_str(&page));
	} else {
		printf("%s\n", buf_str(&page));
		t->ended |= fflush(stdout) != 0;
	}
}

/* The first reading says whether there is anything to show at all. */
static void show_reading(struct top *t, int64_t now)
{
	if (t->view_at_ms == 0) {
		cli_print_error(&t->trouble);
		t->exit_code = CLI_FAILED;
		t->ended = true;
		return;
	}
	if (t->on_screen && !screen_open(&t->screen))
		t->ended = true;
	show(t, now);
	if (t->frames_left > 0 && --t->frames_left == 0)
		t->ended = true;
}

/* --- keys and signals ------------------------------------------------------------------------------------------------- */

static void hear_key(struct top *t)
{
	char keys[64];
	ssize_t n = read(STDIN_FILENO, keys, sizeof(keys));

	/* Nobody is at the other end any more. */
	if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
		t->ended = true;
	for (ssize_t i = 0; i < n; i++)
		t->ended |= keys[i] == 'q' || keys[i] == 'Q';
}

static void stop_for_now(struct top *t)
{
	screen_close(&t->screen);
	raise(SIGSTOP);
}

static void hear_signal(struct top *t, int64_t now)
{
	struct signalfd_siginfo info;

	if (read(t->signals, &info, sizeof(info)) != sizeof(info))
		return;
	switch (info.ssi_signo) {
	case SIGTSTP:
		stop_for_now(t);
		break;
	case SIGCONT:
		/* A shell may have set the terminal to its liking meanwhile. */
		screen_close(&t->screen);
		if (t->on_screen && t->view_at_ms > 0 && !screen_open(&t->screen))
			t->ended = true;
		break;
	case SIGWINCH:
		break;
	default:
		t->ended = true;
		return;
	}
	if (t->on_screen && t->view_at_ms > 0)
		show(t, now);
}

/* They are read in the loop, so that the terminal is always given back. */
static int open_signals(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		sigaddset(&set, numbers[i]);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* --- the loop --------------------------------------------------------------------------------------------------------- */

static int timeout_ms(const struct top *t, int64_t now)
{
	int64_t wait = t->reading.under_way ? TICK_MS : MAX(t->next_read_ms - now, 0);

	return (int)MIN(wait, TICK_MS);
}

static void turn(struct top *t)
{
	struct pollfd fds[] = {
		{ .fd = t->signals, .events = POLLIN },
		{ .fd = t->reading.under_way ? t->reading.errand.over_fd : -1, .events = POLLIN },
		{ .fd = t->screen.open ? STDIN_FILENO : -1, .events = POLLIN },
	};
	int64_t now;

	poll(fds, ARRAY_SIZE(fds), timeout_ms(t, clock_ms()));
	now = clock_ms();
	if (fds[0].revents)
		hear_signal(t, now);
	if (fds[2].revents)
		hear_key(t);
	if (fds[1].revents && !t->ended) {
		take_reading(t, now);
		show_reading(t, now);
	} else if (t->screen.open && t->trouble.kind != ERROR_NONE && !t->ended) {
		show(t, now);   /* the age of what is shown */
	}
	if (!t->reading.under_way && !t->ended && now >= t->next_read_ms)
		start_reading(t);
}

static void release(struct top *t)
{
	screen_close(&t->screen);
	/* A server that does not answer is no reason to stay. */
	if (t->reading.under_way && !errand_is_over(&t->reading.errand))
		_exit(t->exit_code);
	if (t->reading.under_way)
		take_reading(t, clock_ms());
	overview_release(&t->view);
	rates_release(&t->rates);
	pg_closep(&t->reading.conn);
	close(t->signals);
}

static int watch(struct top *t)
{
	int code;

	t->signals = open_signals();
	if (t->signals < 0)
		abort();        /* out of descriptors: nothing can run */
	while (!t->ended)
		turn(t);
	code = t->exit_code;
	release(t);
	return code;
}

/* --- the command ------------------------------------------------------------------------------------------------------ */

static int run(const struct cli *cli)
{
	_cleanup_(config_freep) struct config *config = NULL;
	const char *interval = cli_value(cli, "interval"), *count = cli_value(cli, "count");
	struct top t = { .interval_ms = INTERVAL_MS, .frames_left = -1, .on_screen = screen_is_there() };

	if (interval && (!units_duration(interval, &t.interval_ms) || t.interval_ms < INTERVAL_MIN_MS))
		return steering_wrong(cli, "--interval takes a duration from 100ms on, such as 5s");
	if (count && (!units_integer(count, &t.frames_left) || t.frames_left < 1))
		return steering_wrong(cli, "--count takes a number from 1 on");
	if (!cli_load_config(cli, true, &config))
		return CLI_SETTINGS;
	log_silence();
	t.reading.config = config;
	return watch(&t);
}

static const struct cli_flag flags[] = {
	{ "interval", 0, "DURATION", "how often to look; 2s unless set" },
	{ "count", 0, "N", "look so many times, and end" },
	{ 0 },
};

const struct command command_top = {
	.name = "top",
	.summary = "watch what status shows, live",
	.usage = "[--interval DURATION] [--count N]",
	.details =
		"Fills the terminal with what `postrider status` shows, again and again: outboxes first, then sinks that are\n"
		"away, replication slots, nodes and workers; with the rows that were published in a second, over the last\n"
		"six looks. It reads the database alone, and so works from anywhere. q or Ctrl-C quits.\n\n"
		"Where standard input or output is no terminal, it writes one page after the other, as plain text.\n\n"
		"When the database cannot be read any more, it says so, keeps what it has, and goes on trying.\n\n"
		"Exit code 0: it was ended; 1: the database could not be read at first.",
	.flags = flags,
	.run = run,
};
