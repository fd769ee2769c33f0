#include "cli/steering.h"

#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "config/load.h"
#include "config/suggest.h"
#include "pg/conn.h"
#include "pg/migrate.h"

int steering_wrong(const struct cli *cli, const char *fmt, ...)
{
	va_list args;

	fputs("postrider: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "\nTry `postrider help %s`.\n", cli->command->name);
	return CLI_USAGE;
}

static const struct outbox_config *find_outbox(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->n_outboxes; i++)
		if (strcmp(config->outboxes[i].name, name) == 0)
			return &config->outboxes[i];
	return NULL;
}

static int unknown_outbox(const struct cli *cli, const struct config *config, const char *name)
{
	_cleanup_(mem_freep) const char **names = mem_new_array(const char *, config->n_outboxes);
	const char *nearest;

	for (size_t i = 0; i < config->n_outboxes; i++)
		names[i] = config->outboxes[i].name;
	nearest = suggest_nearest(name, names, config->n_outboxes);
	return steering_wrong(cli, "the settings have no outbox %s%s%s%s", name, nearest ? "; did you mean " : "",
			      nearest ? nearest : "", nearest ? "?" : "");
}

static int open_target(struct steering *s, const struct outbox_config *outbox)
{
	struct error err = { 0 };

	if (target_open(&s->targets[s->n_targets++], s->conn, outbox, &err))
		return CLI_OK;
	cli_print_error(&err);
	return err.kind == ERROR_CONFIG ? CLI_SETTINGS : CLI_FAILED;
}

static int open_targets(struct steering *s, const char *const *names, size_t n_names)
{
	size_t n = n_names > 0 ? n_names : s->config->n_outboxes;
	int code = CLI_OK;

	s->targets = mem_new_array(struct target, n);
	for (size_t i = 0; i < n && code == CLI_OK; i++)
		code = open_target(s, n_names > 0 ? find_outbox(s->config, names[i]) : &s->config->outboxes[i]);
	return code;
}

int steering_open(struct steering *s, const struct cli *cli, const char *const *names, size_t n_names,
		  enum which_outboxes which)
{
	struct error err = { 0 };

	if (!cli_load_config(cli, true, &s->config))
		return CLI_SETTINGS;
	log_silence();
	for (size_t i = 0; i < n_names; i++)
		if (!find_outbox(s->config, names[i]))
			return unknown_outbox(cli, s->config, names[i]);
	if (n_names == 0 && which == STEER_ONE && s->config->n_outboxes > 1)
		return steering_wrong(cli, "the settings have several outboxes: say which one with --outbox");
	if (!pg_connect(&s->config->database, cli->command->name, -1, &s->conn, &err) ||
	    !migrate_version_check(s->conn, &err)) {
		cli_print_error(&err);
		return CLI_FAILED;
	}
	return open_targets(s, names, n_names);
}

void steering_release(struct steering *s)
{
	for (size_t i = 0; i < s->n_targets; i++)
		target_release(&s->targets[i]);
	free(s->targets);
	pg_closep(&s->conn);
	config_freep(&s->config);
}

char *steering_who(void)
{
	const struct passwd *user = getpwuid(geteuid());
	char host[256] = "";

	if (gethostname(host, sizeof(host) - 1) != 0)
		host[0] = 0;
	return mem_printf("%s@%s", user ? user->pw_name : "somebody", host[0] ? host : "localhost");
}

const char *steering_value(const PGresult *res, int row, int column)
{
	return PQgetisnull(res, row, column) ? NULL : PQgetvalue(res, row, column);
}

static void add_key(struct buf *out, const char *key)
{
	buf_printf(out, "%s\"%s\":", out->len > 0 && out->data[out->len - 1] == '{' ? "" : ",", key);
}

void steering_add_text(struct buf *out, const char *key, const char *text)
{
	add_key(out, key);
	if (text)
		buf_add_json(out, slice_of(text));
	else
		buf_add_str(out, "null");
}

void steering_add_number(struct buf *out, const char *key, int64_t number)
{
	add_key(out, key);
	buf_printf(out, "%lld", (long long)number);
}
