#include "config/options.h"

#include <inttypes.h>
#include <string.h>

#include "config/config.h"
#include "config/units.h"

#define SECOND (INT64_C(1000))
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define KIB (INT64_C(1024))
#define GIB (KIB * KIB * KIB)

/* In the order of the enums in config.h and base/log.h. */
static const char *const log_level_words[] = { "error", "warn", "info", "debug", NULL };
static const char *const log_format_words[] = { "text", "json", NULL };
static const char *const database_tls_words[] = { "auto", "off", NULL };
static const char *const database_pooler_words[] = { "none", "session", NULL };
static const char *const settle_words[] = { "batch", "row", NULL };
static const char *const order_words[] = { "auto", "entity", "none", NULL };
static const char *const shard_key_words[] = { "entity", "id", NULL };
static const char *const published_words[] = { "delete", "mark", "archive", "partitions", "keep", NULL };
static const char *const over_budget_words[] = { "warn", "stop", "drop_and_poll", NULL };
static const char *const when_refused_words[] = { "block", "dead_letter", "skip", "stop", NULL };
static const char *const shard_assignment_words[] = { "dynamic", "rendezvous", "static", NULL };
static const char *const wakeup_words[] = { "armed", "always", "off", NULL };
static const char *const preset_words[] = { "postrider", "debezium", NULL };
static const char *const envelope_words[] = { "plain", "cloudevents", NULL };
static const char *const sink_tls_words[] = { "auto", "on", "off", NULL };
static const char *const sasl_words[] = { "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", NULL };

#define STRUCT_PROCESS struct config
#define STRUCT_OUTBOX struct outbox_config
#define STRUCT_BRANCH struct outbox_config
#define STRUCT_SINK struct sink_config
#define STRUCT_KAFKA struct sink_config
#define STRUCT_NATS struct sink_config
#define STRUCT_POSTGRES struct sink_config
#define STRUCT_QUEUE struct sink_config
#define STRUCT_RABBITMQ struct sink_config
#define STRUCT_REDIS struct sink_config
#define STRUCT_SQS struct sink_config
#define STRUCT_STDOUT struct sink_config
#define STRUCT_WEBHOOK struct sink_config

#define OPTION(scope_, key_, field, ...)                     \
	{                                                    \
		.scope = SCOPE_##scope_,                     \
		.key = key_,                                 \
		.offset = offsetof(STRUCT_##scope_, field),  \
		.size = sizeof(((STRUCT_##scope_ *)0)->field), \
		__VA_ARGS__                                  \
	},
const struct option options[] = {
#include "config/options.def"
};
#undef OPTION
const size_t option_count = ARRAY_SIZE(options);

const struct option_section option_sections[] = {
	{ SCOPE_PROCESS, "", "The process", "" },
	{ SCOPE_PROCESS, "log.", "Logging", "" },
	{ SCOPE_PROCESS, "database.", "The database", "The relay reads all its outboxes from one database." },
	{ SCOPE_PROCESS, "http.", "Metrics and health",
	  "A small HTTP server for Prometheus and for probes: [metrics.md](metrics.md)." },
	{ SCOPE_OUTBOX, "", "An outbox",
	  "A process relays one outbox or several. Names are made of small letters, digits, `_` and `-`." },
	{ SCOPE_OUTBOX, "shards.", "The reader `shards`", "How it divides the outbox, and who reads which part." },
	{ SCOPE_OUTBOX, "failure.", "Rows that are refused", "How often they are tried again, and what follows then." },
	{ SCOPE_OUTBOX, "partitions.", "An outbox in partitions",
	  "With `published: partitions`: how large they are, and how many are made in advance." },
	{ SCOPE_OUTBOX, "wal.", "The reader `wal`", "Where it tails the database, and what it does to the table." },
	{ SCOPE_OUTBOX, "columns.", "Columns of the outbox table",
	  "Which column plays which part. An empty name says that the table has none; a column that is named here must "
	  "exist, and one that is only a default may be missing, except for the id, the entity and the payload." },
	{ SCOPE_OUTBOX, "route.", "From a row to a message",
	  "Templates take the value of a column by its name in braces: `outbox.event.{entity_type}`." },
	{ SCOPE_BRANCH, "only.", "Branches",
	  "An outbox has `sinks` or `branches`. Branches have names, as outboxes do, and go on without waiting for each other: each "
	  "has `sinks` of its own, takes the rows that `only` lets through, and may have any other setting of an outbox, which "
	  "counts instead of that of its outbox. Settings of the table (`table`, `preset`, `order_by`, `columns`) are the outbox's "
	  "alone; `published`, `retention`, `wal.slot` and `wal.publication` are each one's own. docs/fan-out.md explains." },
	{ SCOPE_SINK, "", "Sinks",
	  "Where the messages go, in this order: a row is settled when all sinks of its outbox have it." },
	{ SCOPE_KAFKA, "", "Sinks of type kafka", "" },
	{ SCOPE_NATS, "", "Sinks of type nats", "Streams of NATS JetStream. The subject is `route.topic`." },
	{ SCOPE_POSTGRES, "", "Sinks of type postgres",
	  "An event store: appends with a version per entity and a unique message id." },
	{ SCOPE_QUEUE, "", "Sinks of type queue", "Queues in PostgreSQL, without a broker. The queue is `route.topic`." },
	{ SCOPE_RABBITMQ, "", "Sinks of type rabbitmq",
	  "RabbitMQ with publisher confirms. `route.topic` is the routing key." },
	{ SCOPE_REDIS, "", "Sinks of type redis", "Redis Streams: `route.topic` is the stream." },
	{ SCOPE_SQS, "", "Sinks of type sqs",
	  "Amazon SQS, standard and FIFO queues. `route.topic` is the name of the queue, or its URL." },
	{ SCOPE_STDOUT, "", "Sinks of type stdout", "" },
	{ SCOPE_WEBHOOK, "", "Sinks of type webhook", "A POST for each event, signed as Standard Webhooks." },
};
const size_t option_section_count = ARRAY_SIZE(option_sections);

static const struct {
	const char *path;               /* how a setting of this scope begins, seen from the top of the file */
	const char *sink_type;
} scopes[] = {
	[SCOPE_PROCESS] = { "", NULL },
	[SCOPE_OUTBOX] = { "outboxes.<name>.", NULL },
	[SCOPE_BRANCH] = { "outboxes.<name>.branches.<name>.", NULL },
	[SCOPE_SINK] = { "outboxes.<name>.sinks.<n>.", NULL },
	[SCOPE_KAFKA] = { "outboxes.<name>.sinks.<n>.", "kafka" },
	[SCOPE_NATS] = { "outboxes.<name>.sinks.<n>.", "nats" },
	[SCOPE_POSTGRES] = { "outboxes.<name>.sinks.<n>.", "postgres" },
	[SCOPE_QUEUE] = { "outboxes.<name>.sinks.<n>.", "queue" },
	[SCOPE_RABBITMQ] = { "outboxes.<name>.sinks.<n>.", "rabbitmq" },
	[SCOPE_REDIS] = { "outboxes.<name>.sinks.<n>.", "redis" },
	[SCOPE_SQS] = { "outboxes.<name>.sinks.<n>.", "sqs" },
	[SCOPE_STDOUT] = { "outboxes.<name>.sinks.<n>.", "stdout" },
	[SCOPE_WEBHOOK] = { "outboxes.<name>.sinks.<n>.", "webhook" },
};

const char *option_sink_type(enum option_scope scope)
{
	return scopes[scope].sink_type;
}

bool option_knows_sink(const char *sink_type)
{
	for (size_t i = 0; sink_type && i < ARRAY_SIZE(scopes); i++) {
		if (scopes[i].sink_type && strcmp(scopes[i].sink_type, sink_type) == 0)
			return true;
	}
	return false;
}

bool option_applies(const struct option *o, enum option_scope scope, const char *sink_type)
{
	const char *only = scopes[o->scope].sink_type;

	if (!only)
		return o->scope == scope || (scope == SCOPE_BRANCH && o->scope == SCOPE_OUTBOX);
	return scope == SCOPE_SINK && sink_type && strcmp(only, sink_type) == 0;
}

const struct option *option_find(enum option_scope scope, const char *sink_type, const char *key)
{
	for (size_t i = 0; i < option_count; i++) {
		if (option_applies(&options[i], scope, sink_type) && strcmp(options[i].key, key) == 0)
			return &options[i];
	}
	return NULL;
}

const char *option_in_section(const struct option *o, const struct option_section *section)
{
	size_t len = strlen(section->prefix);

	if (o->scope != section->scope || strncmp(o->key, section->prefix, len) != 0 || strchr(o->key + len, '.'))
		return NULL;
	return o->key + len;
}

void option_add_path(struct buf *b, const struct option *o)
{
	buf_add_str(b, scopes[o->scope].path);
	buf_add_str(b, o->key);
}

static void add_words(struct buf *b, const char *const *words)
{
	for (size_t i = 0; words[i]; i++) {
		if (i > 0)
			buf_add_str(b, words[i + 1] ? ", " : " or ");
		buf_add_str(b, words[i]);
	}
}

static void add_range(struct buf *b, const struct option *o, const char *noun,
		      void (*add_number)(struct buf *, int64_t))
{
	buf_printf(b, "%s from ", noun);
	add_number(b, o->min);
	buf_add_str(b, " to ");
	add_number(b, o->max);
}

static void add_integer(struct buf *b, int64_t n)
{
	buf_printf(b, "%" PRId64, n);
}

void option_describe(struct buf *b, const struct option *o)
{
	switch (o->type) {
	case OPTION_TEXT:
		if (o->words)
			add_words(b, o->words);
		else
			buf_add_str(b, o->flags & OPTION_TEMPLATE ? "a template" : "text");
		break;
	case OPTION_INTEGER:
		add_range(b, o, "a whole number", add_integer);
		break;
	case OPTION_BOOLEAN:
		buf_add_str(b, "true or false");
		break;
	case OPTION_DURATION:
		add_range(b, o, "a duration", units_add_duration);
		break;
	case OPTION_SIZE:
		add_range(b, o, "a size", units_add_size);
		break;
	case OPTION_WORD:
		add_words(b, o->words);
		break;
	case OPTION_COLUMN:
		buf_add_str(b, "a column name");
		break;
	case OPTION_MAP:
		buf_add_str(b, o->flags & OPTION_TEMPLATE ? "a mapping of names to templates" :
							    "a mapping of names to values");
		break;
	}
}

void option_add_facts(struct buf *b, const struct option *o)
{
	option_describe(b, o);
	if (o->flags & OPTION_REQUIRED)
		buf_add_str(b, "; must be set");
	else if (o->fallback[0])
		buf_printf(b, "; default %s", o->fallback);
	if (o->fallback_note)
		buf_printf(b, "%s%s", o->fallback[0] ? ", " : "; default: ", o->fallback_note);
	if (o->variable)
		buf_printf(b, "; also %s", o->variable);
}

bool option_when_refused(const char *word, enum when_refused *ret)
{
	for (size_t i = 0; when_refused_words[i]; i++) {
		if (strcmp(when_refused_words[i], word) == 0) {
			*ret = (enum when_refused)i;
			return true;
		}
	}
	return false;
}
