/* The option table itself, and what is written from it. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "config/docs.h"
#include "config/load.h"
#include "config/options.h"

static char *written(void (*write)(FILE *))
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	write(out);
	fclose(out);
	return text;
}

/* A file of the source tree, whose root meson tells. */
static char *source_file(const char *name)
{
	const char *root = getenv("SOURCE_ROOT");
	_cleanup_(mem_freep) char *path = NULL;
	char *text = mem_alloc(CONFIG_FILE_MAX_BYTES + 1);
	FILE *f;

	if (!root) {
		free(text);
		print_message("SOURCE_ROOT is not set: run this through meson test\n");
		skip();
	}
	path = mem_printf("%s/%s", root, name);
	f = fopen(path, "re");
	if (f) {
		text[fread(text, 1, CONFIG_FILE_MAX_BYTES, f)] = '\0';
		fclose(f);
	}
	return text;
}

static void check_same(const char *name, void (*write)(FILE *), const char *flag)
{
	_cleanup_(mem_freep) char *expected = written(write);
	_cleanup_(mem_freep) char *found = source_file(name);

	if (strcmp(found, expected) != 0)
		fail_msg("%s is not what the option table says; run: build/postrider help %s > %s", name, flag, name);
}

static void docs_are_what_the_option_table_says(void **state _unused_)
{
	check_same("docs/configuration.md", config_write_markdown, "--markdown");
	check_same("docs/postrider.example.yaml", config_write_sample, "--sample");
}

static void load_sample(const char *text)
{
	struct config_request req = { .path = "sample.yaml" };
	struct config_errors errors = { 0 };
	struct config *config = NULL;

	if (!config_load_text(text, strlen(text), &req, &config, &errors))
		config_errors_print(&errors, stderr);
	assert_int_equal(errors.count, 0);
	assert_non_null(config);
	config_free(config);
}

static void the_sample_loads(void **state _unused_)
{
	_cleanup_(mem_freep) char *sample = written(config_write_sample);

	load_sample(sample);
}

/* A # that has not exactly one blank behind it hides a setting. */
static char *uncommented(const char *sample)
{
	char *text = mem_strdup(sample), *to = text;
	bool at_start = true;

	for (const char *p = sample; *p; p++) {
		if (at_start && *p == '#' && (p[1] != ' ' || p[2] == ' '))
			at_start = false;
		else
			*to++ = *p;
		at_start = *p == '\n' || (at_start && *p == ' ');
	}
	*to = '\0';
	return text;
}

static void the_sample_loads_with_every_default_spelled_out(void **state _unused_)
{
	_cleanup_(mem_freep) char *sample = written(config_write_sample);
	_cleanup_(mem_freep) char *all = uncommented(sample);

	assert_null(strstr(all, "#- type"));
	assert_non_null(strstr(all, "\n    workers: 4\n"));
	load_sample(all);
}

static void every_option_is_in_all_documents(void **state _unused_)
{
	_cleanup_(mem_freep) char *markdown = written(config_write_markdown);
	_cleanup_(mem_freep) char *sample = written(config_write_sample);
	_cleanup_(mem_freep) char *help = written(config_write_help);
	_cleanup_(mem_freep) char *man = written(config_write_man);

	for (size_t i = 0; i < option_count; i++) {
		const char *dot = strrchr(options[i].key, '.');
		const char *name = dot ? dot + 1 : options[i].key;
		_cleanup_(mem_freep) char *cell = mem_printf("| `%s` |", name);
		_cleanup_(mem_freep) char *line = mem_printf("%s: ", name);
		_cleanup_(buf_release) struct buf path = { .ceiling = 1000 };

		option_add_path(&path, &options[i]);
		assert_non_null(strstr(markdown, cell));
		assert_non_null(strstr(markdown, options[i].doc));
		assert_non_null(strstr(sample, line));
		assert_non_null(strstr(help, buf_str(&path)));
		assert_non_null(strstr(man, buf_str(&path)));
	}
}

static void help_fits_a_terminal(void **state _unused_)
{
	_cleanup_(mem_freep) char *help = written(config_write_help);

	for (const char *line = help; *line; line += strspn(line, "\n")) {
		size_t len = strcspn(line, "\n");

		assert_true(len <= 80);
		line += len;
	}
}

static void every_row_of_the_option_table_is_sound(void **state _unused_)
{
	static const size_t sizes[] = {
		[OPTION_TEXT] = sizeof(char *),
		[OPTION_INTEGER] = sizeof(int64_t),
		[OPTION_BOOLEAN] = sizeof(bool),
		[OPTION_DURATION] = sizeof(int64_t),
		[OPTION_SIZE] = sizeof(int64_t),
		[OPTION_WORD] = sizeof(enum wakeup_mode),
		[OPTION_COLUMN] = sizeof(struct column_config),
		[OPTION_MAP] = sizeof(struct config_map),
	};

	for (size_t i = 0; i < option_count; i++) {
		const struct option *o = &options[i];
		size_t sections = 0, len = strlen(o->doc);

		assert_int_equal(o->size, sizes[o->type]);
		assert_non_null(o->fallback);
		assert_true(len > 0 && o->doc[len - 1] == '.');
		assert_true(o->type != OPTION_WORD || o->words);
		for (const char *c = o->key; *c; c++)
			assert_true(islower((unsigned char)*c) || *c == '_' || *c == '.');
		for (size_t k = 0; k < option_section_count; k++)
			sections += option_in_section(o, &option_sections[k]) != NULL;
		assert_int_equal(sections, 1);
		for (size_t k = 0; k < i; k++)
			assert_false(options[k].scope == o->scope && strcmp(options[k].key, o->key) == 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(docs_are_what_the_option_table_says),
		cmocka_unit_test(the_sample_loads),
		cmocka_unit_test(the_sample_loads_with_every_default_spelled_out),
		cmocka_unit_test(every_option_is_in_all_documents),
		cmocka_unit_test(help_fits_a_terminal),
		cmocka_unit_test(every_row_of_the_option_table_is_sound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
