/* What no single value can be blamed for, and the defaults that depend on other settings. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "config/errors.h"
#include "config/listen.h"
#include "config/place.h"
#include "config/shard_list.h"
#include "config/value.h"

/* A setting of a sink that means nothing without another one. */
static const struct {
	enum option_scope scope;
	const char *key, *needs;
} needs[] = {
	{ SCOPE_KAFKA, "tls_cert_file", "tls_key_file" },
	{ SCOPE_KAFKA, "tls_key_file", "tls_cert_file" },
	{ SCOPE_KAFKA, "tls_key_password_file", "tls_key_file" },
	{ SCOPE_KAFKA, "sasl_username", "sasl_mechanism" },
	{ SCOPE_KAFKA, "sasl_password_file", "sasl_username" },
	{ SCOPE_NATS, "tls_cert_file", "tls_key_file" },
	{ SCOPE_NATS, "tls_key_file", "tls_cert_file" },
	{ SCOPE_NATS, "password_file", "user" },
	{ SCOPE_POSTGRES, "password_file", "url" },
	{ SCOPE_QUEUE, "password_file", "url" },
	{ SCOPE_REDIS, "user", "password_file" },
	{ SCOPE_REDIS, "tls_cert_file", "tls_key_file" },
	{ SCOPE_REDIS, "tls_key_file", "tls_cert_file" },
	{ SCOPE_SQS, "access_key_id", "secret_access_key_file" },
	{ SCOPE_SQS, "secret_access_key_file", "access_key_id" },
	{ SCOPE_RABBITMQ, "tls_cert_file", "tls_key_file" },
	{ SCOPE_RABBITMQ, "tls_key_file", "tls_cert_file" },
	{ SCOPE_WEBHOOK, "tls_cert_file", "tls_key_file" },
	{ SCOPE_WEBHOOK, "tls_key_file", "tls_cert_file" },
};

bool rules_is_name(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len <= NAME_MAX_BYTES && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

void rules_complain_name(struct loader *l, const char *where, const char *what, const char *name)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = 1000 };

	config_add_quoted(&b, name);
	config_errors_add(l->errors, CONFIG_ERROR, where,
			  "the name of %s must be 1 to %d small letters, digits, _ or -, not %s", what, NAME_MAX_BYTES,
			  buf_str(&b));
}

/* Where the value comes from, or else where its owner stands. */
static const char *blame(const struct place *p, const char *key, const char *owner)
{
	const char *origin = place_origin(p, key);

	return origin ? origin : owner;
}

/* The names that a build knows. With no list to ask, everything is known. */
static bool check_driver(struct loader *l, config_names names, const char *what, const char *name, const char *where)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = 4000 };
	const char *known[64];
	size_t n = 0;

	for (size_t i = 0; names && n < ARRAY_SIZE(known) && names(i); i++) {
		if (strcmp(names(i), name) == 0)
			return true;
		known[n++] = names(i);
	}
	if (!names)
		return true;
	config_add_quoted(&b, name);
	layer_add_hint(&b, name, known, n);
	config_errors_add(l->errors, CONFIG_ERROR, where, "this build has no %s %s", what, buf_str(&b));
	return false;
}

static void check_required(struct loader *l, const struct place *p, const struct sink_config *sink)
{
	for (size_t i = 0; i < option_count; i++) {
		const struct option *o = &options[i];

		if (o->scope != SCOPE_SINK && o->flags & OPTION_REQUIRED && !p->origins[i] &&
		    option_applies(o, p->scope, p->sink_type) && value_text(o, p->object)[0] == '\0')
			config_errors_add(l->errors, CONFIG_ERROR, sink->where, "a sink of type %s needs `%s`",
					  p->sink_type, o->key);
	}
}

static void check_needs(struct loader *l, const struct place *p)
{
	for (size_t i = 0; i < ARRAY_SIZE(needs); i++) {
		const struct option *one, *other;

		if (strcmp(option_sink_type(needs[i].scope), p->sink_type) != 0)
			continue;
		one = option_find(p->scope, p->sink_type, needs[i].key);
		other = option_find(p->scope, p->sink_type, needs[i].needs);
		if (value_text(one, p->object)[0] != '\0' && value_text(other, p->object)[0] == '\0')
			config_errors_add(l->errors, CONFIG_ERROR, p->origins[one - options],
					  "`%s` means nothing without `%s`", needs[i].key, needs[i].needs);
	}
}

static void check_sink(struct loader *l, const struct place *p, struct sink_config *sink)
{
	if (!p->sink_type || sink->type[0] == '\0') {
		if (!place_origin(p, "type"))
			config_errors_add(l->errors, CONFIG_ERROR, sink->where,
					  "a sink needs a `type`: kafka, nats, postgres, queue, rabbitmq, redis, stdout or webhook");
		return;
	}
	if (sink->name[0] == '\0') {
		free(sink->name);
		sink->name = mem_strdup(sink->type);
	} else if (!rules_is_name(sink->name)) {
		rules_complain_name(l, blame(p, "name", sink->where), "a sink", sink->name);
	}
	if (!check_driver(l, l->req->sinks, "sink of type", sink->type, blame(p, "type", sink->where)))
		return;
	check_required(l, p, sink);
	check_needs(l, p);
}

/* Logs and figures tell sinks apart by name. */
static void check_sink_names(struct loader *l, const struct outbox_config *o)
{
	for (size_t i = 0; i < o->n_sinks; i++) {
		for (size_t k = 0; k < i; k++) {
			if (o->sinks[i].name[0] != '\0' && strcmp(o->sinks[i].name, o->sinks[k].name) == 0)
				config_errors_add(l->errors, CONFIG_ERROR, o->sinks[i].where,
						  "two sinks of this outbox are called %s; give one of them a `name`",
						  o->sinks[i].name);
		}
	}
}

static void check_has_sinks(struct loader *l, const struct place *p, const struct outbox_config *o)
{
	const struct tree *sinks = tree_child(p->node, "sinks");

	if (o->n_sinks > 0 || l->req->sinks_optional || (sinks && sinks->kind != TREE_LIST && !sinks->null))
		return;
	if (l->file)
		config_errors_add(l->errors, CONFIG_ERROR, o->where,
				  "outbox `%s` has no sinks; write for example `sinks: [{type: stdout}]`", o->name);
	else
		config_errors_add(l->errors, CONFIG_ERROR, NULL,
				  "there is no settings file, and nothing says where to publish; name a file with "
				  "--config, or set POSTRIDER_OUTBOXES_OUTBOX_SINKS_0_TYPE");
}

/* A batch size that was asked for is not refused because of a default. */
static void check_batch(struct loader *l, const struct place *p, struct outbox_config *o)
{
	if (o->batch_max >= o->batch_size)
		return;
	if (!place_origin(p, "batch_max"))
		o->batch_max = o->batch_size;
	else
		config_errors_add(l->errors, CONFIG_ERROR, place_origin(p, "batch_max"),
				  "`batch_max` is %lld, which is less than `batch_size`, %lld", (long long)o->batch_max,
				  (long long)o->batch_size);
}

/* Only who reads the log knows what is published when the table does not show it. */
static void check_published(struct loader *l, const struct place *p, const struct outbox_config *o)
{
	if (o->published != PUBLISHED_KEEP)
		return;
	if (strcmp(o->reader, "wal") != 0)
		config_errors_add(l->errors, CONFIG_ERROR, place_origin(p, "published"),
				  "the reader %s would publish rows that are kept again and again: `published: keep` is for the "
				  "reader wal; others delete, mark, archive or use partitions", o->reader);
	else if (o->wal.over_budget == OVER_BUDGET_DROP)
		config_errors_add(l->errors, CONFIG_ERROR, place_origin(p, "wal.over_budget"),
				  "rows that are kept cannot be polled, they would all be published again: with "
				  "`published: keep`, `wal.over_budget` is warn or stop");
}

static void check_failure(struct loader *l, const struct place *p, const struct outbox_config *o)
{
	const struct failure_config *f = &o->failure;
	enum when_refused ignored;

	for (size_t i = 0; i < f->topics.count; i++)
		if (!option_when_refused(f->topics.pairs[i].value, &ignored))
			config_errors_add(l->errors, CONFIG_ERROR, f->topics.pairs[i].where,
					  "`failure.topics.%s` must be block, dead_letter, skip or stop, not \"%s\"",
					  f->topics.pairs[i].key, f->topics.pairs[i].value);
	if (f->max_delay_ms < f->first_delay_ms)
		config_errors_add(l->errors, CONFIG_ERROR,
				  place_origin(p, place_origin(p, "failure.max_delay") ? "failure.max_delay" : "failure.first_delay"),
				  "`failure.max_delay` is less than `failure.first_delay`");
}

static void check_shards(struct loader *l, const struct place *p, const struct outbox_config *o)
{
	const struct shards_config *s = &o->shards;

	if ((s->count & (s->count - 1)) != 0)
		config_errors_add(l->errors, CONFIG_ERROR, place_origin(p, "shards.count"),
				  "`shards.count` is %lld, which is not a power of two", (long long)s->count);
	if (s->assignment == ASSIGN_STATIC && s->own[0] == '\0')
		config_errors_add(l->errors, CONFIG_ERROR, place_origin(p, "shards.assignment"),
				  "with static assignment, `shards.own` must say which shards are this node's: `0-7`, say");
	if (s->assignment != ASSIGN_STATIC && s->own[0] != '\0')
		config_errors_add(l->errors, CONFIG_ERROR, place_origin(p, "shards.own"),
				  "`shards.own` means nothing unless `shards.assignment` is static");
	if (s->own[0] != '\0' && !shard_list_parse(s->own, (uint32_t)s->count, NULL))
		config_errors_add(l->errors, CONFIG_ERROR, place_origin(p, "shards.own"),
				  "`shards.own` is a list of numbers and ranges from 0 to %lld, such as `0-3,5`",
				  (long long)s->count - 1);
}

static void check_outbox(struct loader *l, struct outbox_config *o)
{
	const struct place *p = place_of(l, o);

	if (o->parent) {
		branch_check(l, o);
	} else if (!rules_is_name(o->name)) {
		rules_complain_name(l, o->where, "an outbox", o->name);
		return;
	}
	if (o->route.source[0] == '\0') {
		free(o->route.source);
		o->route.source = mem_printf("/postrider/%s", o->parent ? o->parent->name : o->name);
	}
	check_batch(l, p, o);
	check_driver(l, l->req->readers, "reader", o->reader, blame(p, "reader", o->where));
	check_shards(l, p, o);
	check_published(l, p, o);
	check_failure(l, p, o);
	if (o->n_branches > 0)
		branches_check(l, o);
	else
		check_has_sinks(l, p, o);
	for (size_t i = 0; i < o->n_sinks; i++)
		check_sink(l, place_of(l, &o->sinks[i]), &o->sinks[i]);
	check_sink_names(l, o);
}

static const struct outbox_config *earlier_reader(const struct config *c, const struct outbox_config *o)
{
	for (const struct outbox_config *other = c->outboxes; other < o; other++) {
		if (strcmp(other->table, o->table) == 0)
			return other;
	}
	return NULL;
}

/* Two outboxes on one table would each take some of its rows. */
static void check_tables(struct loader *l)
{
	for (size_t i = 0; i < l->config->n_outboxes; i++) {
		const struct outbox_config *o = &l->config->outboxes[i];
		const struct outbox_config *other = earlier_reader(l->config, o);
		_cleanup_(buf_release) struct buf table = { .ceiling = 1000 };

		if (!other)
			continue;
		config_add_quoted(&table, o->table);
		config_errors_add(l->errors, CONFIG_ERROR, blame(place_of(l, o), "table", o->where),
				  "outbox `%s` reads table %s already; one outbox may have several sinks", other->name,
				  buf_str(&table));
	}
}

static void check_any_outbox(struct loader *l)
{
	const struct tree *outboxes = tree_child(l->root, "outboxes");

	if (l->config->n_outboxes > 0 || !l->root || l->root->kind != TREE_MAPPING)
		return;
	if (outboxes && outboxes->kind != TREE_MAPPING && !outboxes->null)
		return; /* told already */
	config_errors_add(l->errors, CONFIG_ERROR, l->file,
			  "no outbox; write for example `outboxes: {orders: {table: public.outbox, "
			  "sinks: [{type: stdout}]}}`");
}

/* Whoever can reach us may read us only with a token, unless it is this machine alone that can. */
static void check_http(struct loader *l)
{
	const struct http_config *http = &l->config->http;
	const struct place *p = place_of(l, l->config);
	struct listen_address address;

	if (http->listen[0] == '\0')
		return;
	if (!listen_parse(http->listen, &address))
		config_errors_add(l->errors, CONFIG_ERROR, place_origin(p, "http.listen"),
				  "`http.listen` must be an address in digits, or localhost, and a port from 1 to 65535, such as "
				  "`127.0.0.1:9187` or `[::1]:9187`");
	else if (!listen_is_loopback(&address) && http->token_file[0] == '\0')
		config_errors_add(l->errors, CONFIG_ERROR, place_origin(p, "http.listen"),
				  "other machines can reach %s: name a file with a token in `http.token_file`, or listen on "
				  "127.0.0.1", http->listen);
}

static void name_node(struct config *c)
{
	char host[256] = "";

	if (c->node[0] != '\0')
		return;
	if (gethostname(host, sizeof(host) - 1) != 0 || host[0] == '\0')
		memcpy(host, "localhost", sizeof("localhost"));
	free(c->node);
	c->node = mem_strdup(host);
}

void rules_apply(struct loader *l)
{
	name_node(l->config);
	check_http(l);
	check_any_outbox(l);
	for (size_t i = 0; i < l->config->n_outboxes; i++)
		check_outbox(l, &l->config->outboxes[i]);
	check_tables(l);
}
