#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/mem.h"
#include "relay/json_scan.h"
#include "sink/json_line.h"
#include "sink/json_text.h"
#include "sink/sink.h"

extern const struct sink_driver sink_stdout;

/* One target on a path in a folder of its own, and the sink of one worker. */
struct fixture {
	char folder[64];
	char *path;
	struct sink_config config;
	struct sink_target *target;
	struct mailbox box;
	struct sink *sink;
};

static struct sink *open_sink(struct fixture *f, struct mailbox *box)
{
	struct sink_env env = { .outcomes = box, .last = true };
	struct sink *sink;
	struct error err;

	assert_true(sink_stdout.open(f->target, &env, &sink, &err));
	return sink;
}

static void fixture_open(struct fixture *f, const char *name)
{
	struct error err;

	*f = (struct fixture){ .folder = "/tmp/postrider-test-XXXXXX" };
	assert_non_null(mkdtemp(f->folder));
	f->path = mem_printf("%s/%s", f->folder, name);
	f->config.std.path = f->path;
	if (strcmp(name, "pipe") == 0)
		assert_int_equal(mkfifo(f->path, 0600), 0);
	mailbox_init(&f->box);
	assert_true(sink_stdout.target_open(&f->config, &f->target, &err));
	f->sink = open_sink(f, &f->box);
}

static void fixture_close(struct fixture *f)
{
	sink_stdout.close(f->sink);
	sink_stdout.target_close(f->target);
	mailbox_release(&f->box);
	unlink(f->path);
	rmdir(f->folder);
	free(f->path);
}

static char *read_all(const char *path)
{
	_cleanup_(buf_release) struct buf b = { 0 };
	char chunk[4096];
	ssize_t n;
	int fd = open(path, O_RDONLY);

	assert_true(fd >= 0);
	buf_init(&b, 1 << 24);
	while ((n = read(fd, chunk, sizeof(chunk))) > 0)
		buf_add(&b, chunk, (size_t)n);
	close(fd);
	return buf_take(&b);
}

static struct event event_of(const char *id, const char *payload)
{
	return (struct event){
		.message_id = slice_of(id),
		.entity = SLICE_LITERAL("e"),
		.topic = SLICE_LITERAL("t"),
		.key = SLICE_LITERAL("k"),
		.payload = slice_of(payload),
	};
}

static uint32_t submit(struct fixture *f, struct event *first, uint32_t n)
{
	struct event *events[64];

	for (uint32_t i = 0; i < n; i++)
		events[i] = first + i;
	return sink_stdout.submit(f->sink, events, n);
}

/* Takes the outcomes; says how many are delivered. */
static uint32_t delivered(struct mailbox *box, uint32_t *ret_failed, struct error *ret_why)
{
	uint32_t n = 0;

	*ret_failed = 0;
	for (struct event *ev = mailbox_take(box); ev; ev = ev->next) {
		if (!ev->failure) {
			n++;
			continue;
		}
		(*ret_failed)++;
		*ret_why = *ev->failure;
		free(ev->failure);
		ev->failure = NULL;
	}
	return n;
}

static void assert_delivered(struct fixture *f, uint32_t n)
{
	uint32_t failed;
	struct error why;

	assert_int_equal(delivered(&f->box, &failed, &why), n);
	assert_int_equal(failed, 0);
}

static void a_line_shows_the_payload_as_what_it_is(void **state _unused_)
{
	static const struct {
		struct slice payload;
		const char *shown;
	} cases[] = {
		{ { NULL, 0 }, "\"payload\":null" },
		{ SLICE_LITERAL("{\"a\":\n 12345678901234567890.10}"), "\"payload\":{\"a\":  12345678901234567890.10}" },
		{ SLICE_LITERAL(" [] "), "\"payload\": [] " },
		{ SLICE_LITERAL("null"), "\"payload\":null" },
		{ SLICE_LITERAL(""), "\"payload\":\"\"" },
		{ SLICE_LITERAL("plain \"text\"\n"), "\"payload\":\"plain \\\"text\\\"\\u000a\"" },
		{ SLICE_LITERAL("{\"a\":1"), "\"payload\":\"{\\\"a\\\":1\"" },
		{ SLICE_LITERAL("a\0b"), "\"payload\":\"a\\u0000b\"" },
		{ SLICE_LITERAL("\xff\x00\x01\x02"), "\"payload_base64\":\"/wABAg==\"" },
		{ SLICE_LITERAL("\xff"), "\"payload_base64\":\"/w==\"" },
		{ SLICE_LITERAL("\xff\xfe\xfd"), "\"payload_base64\":\"//79\"" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf b = { 0 };
		_cleanup_(mem_freep) char *expected = NULL;
		struct event ev = event_of("1", NULL);

		ev.payload = cases[i].payload;
		buf_init(&b, 4096);
		buf_add_event_line(&b, &ev);
		expected = mem_printf("{\"id\":\"1\",\"topic\":\"t\",\"key\":\"k\",\"headers\":{},%s}\n", cases[i].shown);
		assert_string_equal(buf_str(&b), expected);
	}
}

static void a_line_has_the_headers_and_null_for_what_is_missing(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = { 0 };
	struct header headers[] = {
		{ SLICE_LITERAL("a\"b"), SLICE_LITERAL("\n") },
		{ SLICE_LITERAL("none"), SLICE_NULL },
	};
	struct event ev = event_of("1", "1");

	ev.key = SLICE_NULL;
	ev.headers = headers;
	ev.n_headers = 2;
	buf_init(&b, 4096);
	buf_add_event_line(&b, &ev);
	assert_string_equal(buf_str(&b), "{\"id\":\"1\",\"topic\":\"t\",\"key\":null,"
					 "\"headers\":{\"a\\\"b\":\"\\u000a\",\"none\":null},\"payload\":1}\n");
}

static void json_is_told_from_other_text(void **state _unused_)
{
	static const struct {
		const char *text;
		bool json;
	} cases[] = {
		{ "0", true }, { "-0.5e+10", true }, { "1E5", true }, { "01", false }, { "1.", false }, { ".5", false },
		{ "-", false }, { "+1", false }, { "1e", false }, { "true", true }, { "tru", false }, { "nulls", false },
		{ "\"\\u00e9\\n\\/\"", true }, { "\"\\x\"", false }, { "\"\\u12g4\"", false }, { "\"a", false },
		{ "\"a\tb\"", false }, { "[1,2,[3],{}]", true }, { "[1,]", false }, { "[,1]", false }, { "[1 2]", false },
		{ "{\"a\":[{\"b\":null}],\"c\":{}}", true }, { "{\"a\"}", false }, { "{\"a\":}", false }, { "{a:1}", false },
		{ "{\"a\":1,}", false }, { "[}", false }, { "{]", false }, { "[[1]", false }, { "1 2", false }, { "", false },
		{ " ", false }, { "\t{ \"a\" : 1 }\n", true }, { "]", false }, { "[\"a\",{\"b\":[]}]", true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (text_is_json(slice_of(cases[i].text)) != cases[i].json)
			fail_msg("%s", cases[i].text);
}

static void very_deep_json_is_text(void **state _unused_)
{
	size_t depth = 1 << 20;
	char *deep = mem_alloc(depth);

	memset(deep, '[', depth);
	assert_false(text_is_json((struct slice){ deep, depth }));
	memset(deep, '[', JSON_SCAN_DEPTH_MAX);
	memset(deep + JSON_SCAN_DEPTH_MAX, ']', JSON_SCAN_DEPTH_MAX);
	assert_true(text_is_json((struct slice){ deep, 2 * JSON_SCAN_DEPTH_MAX }));
	assert_false(text_is_json((struct slice){ deep, 2 * JSON_SCAN_DEPTH_MAX - 1 }));
	free(deep);
}

/* Words thrown together at random: whatever we take for JSON, another parser must read. */
static void what_is_taken_for_json_is_json(void **state _unused_)
{
	static const char *const words[] = { "{", "}", "[", "]", ",", ":", "\"a\"", "\"\\u0041\"", "1", "-2.5", "true",
					     "null", " ", "0", "\n" };
	uint64_t seed = 4711;
	uint32_t found = 0;

	for (int round = 0; round < 200000; round++) {
		_cleanup_(buf_release) struct buf b = { 0 };
		bool json;
		json_t *parsed;

		buf_init(&b, 4096);
		for (uint64_t n = 1 + random_next(&seed) % 7; n > 0; n--)
			buf_add_str(&b, words[random_next(&seed) % ARRAY_SIZE(words)]);
		json = text_is_json((struct slice){ buf_str(&b), b.len });
		parsed = json_loadb(buf_str(&b), b.len, JSON_DECODE_ANY, NULL);
		if (json != (parsed != NULL))
			fail_msg("round %d: %s", round, buf_str(&b));
		json_decref(parsed);
		found += json;
	}
	assert_true(found > 1000);
}

static void events_become_lines_in_order(void **state _unused_)
{
	_cleanup_(mem_freep) char *text = NULL;
	struct event events[] = { event_of("1", "{}"), event_of("2", NULL) };
	struct fixture f;
	struct stat st;

	fixture_open(&f, "out");
	assert_int_equal(submit(&f, events, 2), 2);
	assert_delivered(&f, 2);
	text = read_all(f.path);
	assert_string_equal(text, "{\"id\":\"1\",\"topic\":\"t\",\"key\":\"k\",\"headers\":{},\"payload\":{}}\n"
				  "{\"id\":\"2\",\"topic\":\"t\",\"key\":\"k\",\"headers\":{},\"payload\":null}\n");
	assert_int_equal(stat(f.path, &st), 0);
	assert_int_equal(st.st_mode & 07, 0);
	fixture_close(&f);
}

static void a_path_that_cannot_be_opened_is_a_wrong_setting(void **state _unused_)
{
	struct sink_config config = { .std.path = (char[]){ "/nonexistent/folder/out" } };
	struct sink_target *target;
	struct error err;

	assert_false(sink_stdout.target_open(&config, &target, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
	assert_string_equal(err.message, "could not open /nonexistent/folder/out: No such file or directory");
}

static void a_removed_file_is_opened_again_at_once(void **state _unused_)
{
	_cleanup_(mem_freep) char *text = NULL;
	struct event ev = event_of("1", "1");
	struct fixture f;

	fixture_open(&f, "out");
	assert_int_equal(submit(&f, &ev, 1), 1);
	assert_delivered(&f, 1);
	unlink(f.path);
	ev = event_of("2", "1");
	assert_int_equal(submit(&f, &ev, 1), 1);
	assert_delivered(&f, 1);
	text = read_all(f.path);
	assert_non_null(strstr(text, "{\"id\":\"2\""));
	assert_null(strstr(text, "{\"id\":\"1\""));
	fixture_close(&f);
}

static void a_renamed_file_is_opened_again_within_a_second(void **state _unused_)
{
	_cleanup_(mem_freep) char *rotated = NULL, *text = NULL, *old = NULL;
	struct event ev = event_of("1", "1");
	struct fixture f;

	fixture_open(&f, "out");
	rotated = mem_printf("%s.1", f.path);
	assert_int_equal(submit(&f, &ev, 1), 1);
	assert_delivered(&f, 1);
	assert_int_equal(rename(f.path, rotated), 0);
	usleep(1100 * 1000);
	ev = event_of("2", "1");
	assert_int_equal(submit(&f, &ev, 1), 1);
	assert_delivered(&f, 1);
	old = read_all(rotated);
	text = read_all(f.path);
	assert_non_null(strstr(old, "{\"id\":\"1\""));
	assert_null(strstr(old, "{\"id\":\"2\""));
	assert_non_null(strstr(text, "{\"id\":\"2\""));
	unlink(rotated);
	fixture_close(&f);
}

static void a_file_that_ends_in_the_middle_of_a_line_gets_a_line_feed_first(void **state _unused_)
{
	_cleanup_(mem_freep) char *text = NULL;
	struct event ev = event_of("1", "1");
	struct fixture f;
	struct error err;
	int fd;

	fixture_open(&f, "out");
	fd = open(f.path, O_WRONLY);
	assert_int_equal(write(fd, "{\"to", 4), 4);
	close(fd);
	sink_stdout.close(f.sink);
	sink_stdout.target_close(f.target);
	assert_true(sink_stdout.target_open(&f.config, &f.target, &err));
	f.sink = open_sink(&f, &f.box);
	assert_int_equal(submit(&f, &ev, 1), 1);
	assert_delivered(&f, 1);
	text = read_all(f.path);
	assert_memory_equal(text, "{\"to\n{\"id\"", 10);
	fixture_close(&f);
}

/* A limit on the size of files stands for a full disk. */
static void a_full_disk_fails_what_is_not_written_and_tears_no_later_line(void **state _unused_)
{
	_cleanup_(mem_freep) char *text = NULL;
	struct event events[] = { event_of("1", "1"), event_of("2", "1"), event_of("3", "1") };
	struct rlimit unlimited, small;
	struct fixture f;
	uint32_t failed;
	struct error why;
	int64_t deadline;
	short want;

	fixture_open(&f, "out");
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &unlimited);
	small = (struct rlimit){ .rlim_cur = 80, .rlim_max = unlimited.rlim_max };
	setrlimit(RLIMIT_FSIZE, &small);
	assert_int_equal(submit(&f, events, 3), 3);
	setrlimit(RLIMIT_FSIZE, &unlimited);

	assert_int_equal(submit(&f, events + 1, 1), 0); /* the failure is not read yet */
	assert_int_equal(delivered(&f.box, &failed, &why), 1);
	assert_int_equal(failed, 2);
	assert_int_equal(why.kind, ERROR_TRANSPORT);

	assert_int_equal(submit(&f, events + 1, 2), 0); /* the pause */
	assert_int_equal(sink_stdout.pollfd(f.sink, &want, &deadline), -1);
	assert_true(deadline > clock_ms() && deadline <= clock_ms() + 200);
	usleep(210 * 1000);
	sink_stdout.pump(f.sink, clock_ms());
	assert_int_equal(submit(&f, events + 1, 2), 2);
	assert_delivered(&f, 2);

	text = read_all(f.path);
	assert_string_equal(text, "{\"id\":\"1\",\"topic\":\"t\",\"key\":\"k\",\"headers\":{},\"payload\":1}\n"
				  "{\"id\":\"2\",\"topic\":\"t\",\n"
				  "{\"id\":\"2\",\"topic\":\"t\",\"key\":\"k\",\"headers\":{},\"payload\":1}\n"
				  "{\"id\":\"3\",\"topic\":\"t\",\"key\":\"k\",\"headers\":{},\"payload\":1}\n");
	fixture_close(&f);
}

static void a_slow_reader_makes_the_sink_wait_without_blocking(void **state _unused_)
{
	char *large = mem_alloc(300000);
	struct event ev, other;
	struct mailbox box;
	struct fixture f;
	struct sink *second;
	int64_t deadline, size = 0;
	char chunk[65536];
	short want;
	int fd;

	memset(large, 'x', 299999);
	ev = event_of("1", large);
	other = event_of("2", "1");
	fixture_open(&f, "pipe");
	mailbox_init(&box);
	second = open_sink(&f, &box);
	fd = open(f.path, O_RDONLY | O_NONBLOCK);
	assert_int_equal(submit(&f, &ev, 1), 1);
	assert_null(mailbox_take(&f.box));
	assert_true(sink_stdout.pollfd(f.sink, &want, &deadline) >= 0);
	assert_int_equal(want, POLLOUT);
	assert_true(deadline == CLOCK_NEVER);

	/* Another worker does not write into the middle of the line. */
	assert_int_equal(sink_stdout.submit(second, (struct event *[]){ &other }, 1), 0);
	assert_int_equal(sink_stdout.pollfd(second, &want, &deadline), -1);
	assert_true(deadline != CLOCK_NEVER);
	for (int i = 0; i < 100 && size < 300000; i++) {
		ssize_t n = read(fd, chunk, sizeof(chunk));

		size += n > 0 ? n : 0;
		sink_stdout.pump(f.sink, clock_ms());
	}
	assert_delivered(&f, 1);
	while (read(fd, chunk, sizeof(chunk)) > 0)
		;
	usleep(11 * 1000);
	sink_stdout.pump(second, clock_ms());
	assert_int_equal(sink_stdout.submit(second, (struct event *[]){ &other }, 1), 1);
	assert_ptr_equal(mailbox_take(&box), &other);
	close(fd);
	sink_stdout.close(second);
	mailbox_release(&box);
	fixture_close(&f);
	free(large);
}

static void a_pipe_without_a_reader_is_an_outage(void **state _unused_)
{
	struct event ev = event_of("1", "1");
	struct fixture f;
	uint32_t failed;
	struct error why;
	int fd;

	fixture_open(&f, "pipe");
	assert_int_equal(submit(&f, &ev, 1), 1);
	assert_int_equal(delivered(&f.box, &failed, &why), 0);
	assert_int_equal(why.kind, ERROR_TRANSPORT);
	assert_non_null(strstr(why.message, "nobody reads from this pipe"));
	assert_int_equal(submit(&f, &ev, 1), 0);
	fd = open(f.path, O_RDONLY | O_NONBLOCK);
	usleep(210 * 1000);
	sink_stdout.pump(f.sink, clock_ms());
	assert_int_equal(submit(&f, &ev, 1), 1);
	assert_delivered(&f, 1);
	close(fd);
	fixture_close(&f);
}

/* Reads the pipe to its end while the sink writes; counts lines. */
static uint32_t drain_lines(struct fixture *f, int fd)
{
	static char chunk[65536];
	uint32_t lines = 0;

	for (int i = 0; i < 100; i++) {
		ssize_t n = read(fd, chunk, sizeof(chunk));

		for (ssize_t k = 0; k < n; k++)
			lines += chunk[k] == '\n';
		sink_stdout.pump(f->sink, clock_ms());
	}
	return lines;
}

static void a_recall_completes_the_line_that_is_begun_and_drops_the_rest(void **state _unused_)
{
	char *large = mem_alloc(300000);
	struct event events[4];
	struct fixture f;
	struct error why;
	uint32_t failed;
	int fd;

	memset(large, 'x', 299999);
	events[0] = event_of("1", "1");
	events[1] = event_of("2", large);
	events[2] = event_of("3", "1");
	events[3] = event_of("4", "1");
	fixture_open(&f, "pipe");
	fd = open(f.path, O_RDONLY | O_NONBLOCK);
	assert_int_equal(submit(&f, events, 4), 4);
	sink_stdout.recall(f.sink);
	assert_int_equal(delivered(&f.box, &failed, &why), 0);
	assert_int_equal(failed, 2);
	assert_int_equal(why.kind, ERROR_LOST);
	assert_int_equal(drain_lines(&f, fd), 2);
	assert_delivered(&f, 2);
	/* A second one finds nothing, and lines go on. */
	sink_stdout.recall(f.sink);
	assert_int_equal(submit(&f, &events[2], 1), 1);
	assert_delivered(&f, 1);
	assert_int_equal(drain_lines(&f, fd), 1);
	close(fd);
	fixture_close(&f);
	free(large);
}

static void a_recall_before_the_first_byte_leaves_the_pipe_to_others(void **state _unused_)
{
	struct event events[2] = { event_of("1", "1"), event_of("2", "1") }, other = event_of("3", "1");
	static const char filling[4096];
	struct mailbox box;
	struct fixture f;
	struct sink *second;
	struct error why;
	uint32_t failed;
	int fd, full;

	fixture_open(&f, "pipe");
	mailbox_init(&box);
	second = open_sink(&f, &box);
	fd = open(f.path, O_RDONLY | O_NONBLOCK);
	full = open(f.path, O_WRONLY | O_NONBLOCK);
	while (write(full, filling, sizeof(filling)) > 0)
		;
	assert_int_equal(submit(&f, events, 2), 2);
	assert_null(mailbox_take(&f.box));
	sink_stdout.recall(f.sink);
	assert_int_equal(delivered(&f.box, &failed, &why), 0);
	assert_int_equal(failed, 2);
	assert_int_equal(why.kind, ERROR_LOST);
	assert_int_equal(drain_lines(&f, fd), 0);
	assert_int_equal(sink_stdout.submit(second, (struct event *[]){ &other }, 1), 1);
	assert_ptr_equal(mailbox_take(&box), &other);
	close(full);
	close(fd);
	sink_stdout.close(second);
	mailbox_release(&box);
	fixture_close(&f);
}

enum { WRITERS = 4, LINES = 2000 };

struct writer {
	struct fixture *f;
	int number;
};

static void *write_lines(void *arg)
{
	struct writer *w = arg;
	struct mailbox box;
	struct sink *sink;

	mailbox_init(&box);
	sink = open_sink(w->f, &box);
	for (int i = 0; i < LINES;) {
		char id[32];
		struct event ev = event_of(id, "\"some payload\"");
		struct event *events[] = { &ev };

		snprintf(id, sizeof(id), "%d-%d", w->number, i);
		ev.message_id = slice_of(id);
		i += (int)sink_stdout.submit(sink, events, 1);
		sink_stdout.pump(sink, clock_ms());
		mailbox_take(&box);
	}
	sink_stdout.close(sink);
	mailbox_release(&box);
	return NULL;
}

static void workers_write_whole_lines_side_by_side(void **state _unused_)
{
	_cleanup_(mem_freep) char *text = NULL;
	struct writer writers[WRITERS];
	pthread_t threads[WRITERS];
	int next[WRITERS] = { 0 };
	struct fixture f;

	fixture_open(&f, "out");
	for (int i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){ &f, i };
		pthread_create(&threads[i], NULL, write_lines, &writers[i]);
	}
	for (int i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	text = read_all(f.path);
	for (char *line = text, *end; *line; line = end + 1) {
		int writer, number;

		end = strchr(line, '\n');
		assert_non_null(end);
		assert_int_equal(sscanf(line, "{\"id\":\"%d-%d\"", &writer, &number), 2);
		assert_int_equal(number, next[writer]++);
		assert_int_equal(end[-1], '}');
	}
	for (int i = 0; i < WRITERS; i++)
		assert_int_equal(next[i], LINES);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_shows_the_payload_as_what_it_is),
		cmocka_unit_test(a_line_has_the_headers_and_null_for_what_is_missing),
		cmocka_unit_test(json_is_told_from_other_text),
		cmocka_unit_test(very_deep_json_is_text),
		cmocka_unit_test(what_is_taken_for_json_is_json),
		cmocka_unit_test(events_become_lines_in_order),
		cmocka_unit_test(a_path_that_cannot_be_opened_is_a_wrong_setting),
		cmocka_unit_test(a_removed_file_is_opened_again_at_once),
		cmocka_unit_test(a_renamed_file_is_opened_again_within_a_second),
		cmocka_unit_test(a_file_that_ends_in_the_middle_of_a_line_gets_a_line_feed_first),
		cmocka_unit_test(a_full_disk_fails_what_is_not_written_and_tears_no_later_line),
		cmocka_unit_test(a_slow_reader_makes_the_sink_wait_without_blocking),
		cmocka_unit_test(a_pipe_without_a_reader_is_an_outage),
		cmocka_unit_test(a_recall_completes_the_line_that_is_begun_and_drops_the_rest),
		cmocka_unit_test(a_recall_before_the_first_byte_leaves_the_pipe_to_others),
		cmocka_unit_test(workers_write_whole_lines_side_by_side),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
