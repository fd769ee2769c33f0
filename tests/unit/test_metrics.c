/* The metrics table, and how samples are written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/macros.h"
#include "base/mem.h"
#include "observe/metrics.h"

#define PAGE_MAX (1 << 20)

static bool ends_with(const char *text, const char *end)
{
	size_t len = strlen(text), n = strlen(end);

	return len >= n && strcmp(text + len - n, end) == 0;
}

static void every_row_of_the_table_is_sound(void **state _unused_)
{
	for (size_t i = 0; i < METRIC_COUNT; i++) {
		const struct metric *m = &metrics[i];

		assert_true(strncmp(m->name, "postrider_", 10) == 0 || strncmp(m->name, "process_", 8) == 0);
		assert_int_equal(strspn(m->name, "abcdefghijklmnopqrstuvwxyz_"), strlen(m->name));
		assert_int_equal(ends_with(m->name, "_total"), m->type == METRIC_COUNTER);
		assert_true(m->type != METRIC_HISTOGRAM || ends_with(m->name, "_seconds"));
		assert_true(ends_with(m->help, "."));
		assert_null(strchr(m->help, '|'));
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(metrics[k].name, m->name);
	}
}

static void samples_are_written_with_one_head(void **state _unused_)
{
	_cleanup_(buf_release) struct buf out = { .ceiling = 10000 };
	struct metrics_writer w;
	const char *text;

	metrics_begin(&w, &out);
	metrics_sample(&w, METRIC_WORKERS, LABELS("a"), 4);
	metrics_sample(&w, METRIC_WORKERS, LABELS("b"), 2);
	metrics_sample(&w, METRIC_SINK_ERRORS, LABELS("a", "kafka", "lost"), 9007199254740991.0 / 10);
	metrics_sample(&w, METRIC_CPU_SECONDS, NO_LABELS, 0.1);
	text = buf_str(&out);
	assert_non_null(strstr(text, "# HELP postrider_workers Workers of this process.\n# TYPE postrider_workers gauge\n"
				     "postrider_workers{outbox=\"a\"} 4\npostrider_workers{outbox=\"b\"} 2\n# HELP "));
	assert_non_null(strstr(text, "\npostrider_sink_errors_total{outbox=\"a\",sink=\"kafka\",kind=\"lost\"} 900719925474099\n"));
	assert_non_null(strstr(text, "\nprocess_cpu_seconds_total 0.1\n"));
}

static void hostile_label_values_stay_inside_their_quotes(void **state _unused_)
{
	_cleanup_(buf_release) struct buf out = { .ceiling = 10000 };
	struct metrics_writer w;

	metrics_begin(&w, &out);
	metrics_sample(&w, METRIC_SHARDS_OWNED, LABELS("a\"} 1\nevil 2", "\\n\xff\xc3\xa4\xc3"), 1);
	assert_non_null(strstr(buf_str(&out), "\npostrider_shards_owned{outbox=\"a\\\"} 1\\nevil 2\",node=\"\\\\n\xef\xbf\xbd\xc3\xa4"
					      "\xef\xbf\xbd\"} 1\n"));
}

static void a_histogram_counts_upwards(void **state _unused_)
{
	_cleanup_(buf_release) struct buf out = { .ceiling = 10000 };
	struct histogram h = { 0 }, other = { 0 };
	struct metrics_writer w;

	histogram_add(&h, -5);          /* clocks differ */
	histogram_add(&h, 500);         /* a bound belongs to its step */
	histogram_add(&h, 501);
	histogram_add(&other, INT64_C(3600) * 1000000);
	histogram_merge(&h, &other);
	metrics_begin(&w, &out);
	metrics_histogram(&w, METRIC_CREATED_TO_ACK, LABELS("a"), &h);
	assert_non_null(strstr(buf_str(&out), "_bucket{outbox=\"a\",le=\"0.0005\"} 2\n"));
	assert_non_null(strstr(buf_str(&out), "_bucket{outbox=\"a\",le=\"0.001\"} 3\n"));
	assert_non_null(strstr(buf_str(&out), "_bucket{outbox=\"a\",le=\"300\"} 3\n"));
	assert_non_null(strstr(buf_str(&out), "_bucket{outbox=\"a\",le=\"+Inf\"} 4\n"));
	assert_non_null(strstr(buf_str(&out), "_sum{outbox=\"a\"} 3600.001001\n"));
	assert_non_null(strstr(buf_str(&out), "_count{outbox=\"a\"} 4\n"));
}

static void the_page_is_what_the_table_says(void **state _unused_)
{
	const char *root = getenv("SOURCE_ROOT");
	_cleanup_(mem_freep) char *path = mem_printf("%s/docs/metrics.md", root ? root : "");
	_cleanup_(mem_freep) char *found = mem_alloc(PAGE_MAX), *expected = NULL;
	size_t len;
	FILE *out = open_memstream(&expected, &len), *f;

	assert_non_null(out);
	metrics_write_markdown(out);
	fclose(out);
	if (!root) {
		print_message("SOURCE_ROOT is not set: run this through meson test\n");
		skip();
	}
	f = fopen(path, "re");
	assert_non_null(f);
	found[fread(found, 1, PAGE_MAX - 1, f)] = '\0';
	fclose(f);
	if (strcmp(found, expected) != 0)
		fail_msg("docs/metrics.md is not what the table says; run: build/postrider help --metrics > docs/metrics.md");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_of_the_table_is_sound),
		cmocka_unit_test(samples_are_written_with_one_head),
		cmocka_unit_test(hostile_label_values_stay_inside_their_quotes),
		cmocka_unit_test(a_histogram_counts_upwards),
		cmocka_unit_test(the_page_is_what_the_table_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
