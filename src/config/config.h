/* The settings of a process, as read by config_load from file, environment and flags (later ones win).
 * Immutable once loaded; every thread may read them. Each field is one row of config/options.def. */
#ifndef POSTRIDER_CONFIG_CONFIG_H
#define POSTRIDER_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"

/* A setting whose keys the user chooses: message headers, Kafka properties. In the order of the file. */
struct config_pair {
	char *key;
	char *value;
	char *where;                    /* "postrider.yaml:12:7", for messages */
};
struct config_map {
	struct config_pair *pairs;
	size_t count;
};

enum database_tls { DATABASE_TLS_AUTO, DATABASE_TLS_OFF };
enum database_pooler { DATABASE_POOLER_NONE, DATABASE_POOLER_SESSION };
enum wakeup_mode { WAKEUP_ARMED, WAKEUP_ALWAYS, WAKEUP_OFF };
enum settle_mode { SETTLE_BATCHES, SETTLE_EACH_ROW };
enum order_mode { ORDER_AUTO, ORDER_ENTITY, ORDER_NONE };
enum shard_key { SHARD_KEY_ENTITY, SHARD_KEY_ID };
enum published { PUBLISHED_DELETE, PUBLISHED_MARK, PUBLISHED_ARCHIVE, PUBLISHED_PARTITIONS, PUBLISHED_KEEP };
enum over_budget { OVER_BUDGET_WARN, OVER_BUDGET_STOP, OVER_BUDGET_DROP };
enum when_refused { REFUSED_BLOCK, REFUSED_DEAD_LETTER, REFUSED_SKIP, REFUSED_STOP };
enum shard_assignment { ASSIGN_DYNAMIC, ASSIGN_RENDEZVOUS, ASSIGN_STATIC };
enum outbox_preset { PRESET_POSTRIDER, PRESET_DEBEZIUM };
enum envelope_mode { ENVELOPE_PLAIN, ENVELOPE_CLOUDEVENTS };
enum sink_tls { SINK_TLS_AUTO, SINK_TLS_ON, SINK_TLS_OFF };

struct database_config {
	char *url;                      /* "" : libpq's PG* variables */
	char *password_file;            /* "" : none */
	enum database_tls tls;
	enum database_pooler pooler;
	int64_t connect_timeout_ms;
	int64_t statement_timeout_ms;
	int64_t lock_timeout_ms;
	int64_t idle_session_timeout_ms;
};

struct log_config {
	enum log_level level;
	enum log_format format;
};

struct http_config {
	char *listen;                   /* "" : no HTTP server; see config/listen.h */
	char *token_file;               /* "" : none */
	int64_t survey_interval_ms;
	int64_t ready_max_lag_ms;       /* 0: any */
	int64_t alive_within_ms;
};

/* A column of the user's table. "" : it has none. One that the user named must exist, a default one may be missing. */
struct column_config {
	char *name;
	char *where;                    /* NULL: the default */
};

struct columns_config {
	struct column_config id;
	struct column_config entity_id;
	struct column_config message_id;
	struct column_config entity_type;
	struct column_config event_type;
	struct column_config payload;
	struct column_config headers;
	struct column_config topic;
	struct column_config created_at;
	struct column_config traceparent;
	struct column_config published_at;
	struct column_config scheduled_for;
};

struct route_config {
	char *topic;                    /* template */
	char *key;                      /* template */
	struct config_map headers;      /* name to template */
	enum envelope_mode envelope;
	char *source;                   /* CloudEvents source, template */
	bool tombstone;                 /* an empty payload becomes a null value */
};

struct kafka_config {
	char *brokers;
	enum sink_tls tls;
	char *tls_ca_file;
	char *tls_cert_file;
	char *tls_key_file;
	char *tls_key_password_file;
	char *sasl_mechanism;           /* "" : none */
	char *sasl_username;
	char *sasl_password_file;
	struct config_map properties;
};

struct nats_config {
	char *servers;
	char *stream;                   /* "" : whichever keeps the subject */
	int64_t ack_timeout_ms;
	enum sink_tls tls;
	char *tls_ca_file;
	char *tls_cert_file;
	char *tls_key_file;
	char *user;
	char *password_file;
	char *token_file;
	char *credentials_file;
};

struct postgres_sink_config {
	struct database_config database; /* url "" : the outbox's own database */
	char *table;
};

struct queue_sink_config {
	struct database_config database; /* url "" : the outbox's own database */
};

struct rabbitmq_config {
	char *hosts;
	char *vhost;
	char *user;
	char *password_file;            /* "" : RabbitMQ's default password */
	char *exchange;                 /* "" : the default exchange */
	char *content_type;             /* "" : none */
	int64_t heartbeat_ms;
	int64_t connect_timeout_ms;
	enum sink_tls tls;
	char *tls_ca_file;
	char *tls_cert_file;
	char *tls_key_file;
};

struct sqs_config {
	char *region;                   /* "" : that of the environment */
	char *endpoint;                 /* "" : AWS itself */
	char *access_key_id;            /* "" : wherever AWS's own clients look */
	char *secret_access_key_file;
	char *profile;
	int64_t max_message_bytes;
	int64_t requests;               /* at a time, for each worker */
	int64_t connect_timeout_ms;
	int64_t answer_timeout_ms;
	enum sink_tls tls;
	char *tls_ca_file;
};

struct redis_config {
	char *address;                  /* host:port */
	int64_t database;
	char *user;                     /* "" : the default user */
	char *password_file;            /* "" : none */
	enum sink_tls tls;
	char *tls_ca_file;
	char *tls_cert_file;
	char *tls_key_file;
	char *tls_server_name;          /* "" : the host of the address */
	int64_t max_len;                /* 0: streams keep everything */
	int64_t wait_replicas;          /* 0: none is waited for */
	int64_t wait_timeout_ms;
	int64_t connect_timeout_ms;
	int64_t answer_timeout_ms;
};

struct stdout_config {
	char *path;                     /* "-" : standard output */
};

struct webhook_config {
	char *url;                      /* may have {topic} in it */
	char *secret_file;
	char *authorization_file;       /* "" : no such header */
	char *content_type;             /* of events that name none */
	char *header_prefix;
	int64_t concurrency;
	int64_t connect_timeout_ms;
	int64_t answer_timeout_ms;
	int64_t max_retry_after_ms;
	bool allow_private;
	bool allow_http;
	char *tls_ca_file;
	char *tls_cert_file;
	char *tls_key_file;
};

struct outbox_config;

/* The sink of an outbox that has branches. Not a user's to name. */
struct branches_config {
	const struct outbox_config *outbox;
};

struct sink_config {
	char *type;                     /* name of a sink driver */
	char *name;                     /* for logs; the type unless set */
	char *where;                    /* where the sink stands in the file */
	struct kafka_config kafka;
	struct nats_config nats;
	struct postgres_sink_config postgres;
	struct queue_sink_config queue;
	struct rabbitmq_config rabbitmq;
	struct redis_config redis;
	struct sqs_config sqs;
	struct stdout_config std;
	struct webhook_config webhook;
	struct branches_config branches;
	const struct database_config *outbox_database;
};

struct wal_config {
	char *slot;                     /* empty: from the name of the outbox; see wal_slot_name */
	char *publication;              /* the same */
	bool messages;                  /* logical messages are events too */
	int64_t sender_timeout_ms;
	int64_t heartbeat_ms;
	int64_t budget_bytes;
	enum over_budget over_budget;
};

struct failure_config {
	int64_t max_retries;
	int64_t first_delay_ms;
	int64_t max_delay_ms;
	int64_t jitter;                 /* percent of a delay that are left to chance */
	enum when_refused then;         /* when retries are used up … */
	struct config_map topics;       /* … unless the topic is named here: see when_refused_of */
	char *dead_letter_topic;        /* template; "" : none */
};

/* The outbox itself in partitions, where published rows leave whole ones behind. */
struct partitions_config {
	int64_t rows;                   /* that one is meant for */
	int64_t ahead;                  /* how many are there before they are needed */
};

struct shards_config {
	int64_t count;
	enum shard_key key;
	enum shard_assignment assignment;
	char *own;                      /* "0-3,8": those of this node, where assignment is static */
};

/* Which rows a branch takes: those that fit all of this. Patterns as in base/glob.h; "" : any. */
struct only_config {
	char *event_type;
	char *topic;
	struct config_map headers;      /* name to pattern */
};

/* The column of a branch's table that says in which order rows came. */
#define BRANCH_ORDER_COLUMN "branch_position"

/* An outbox with branches is expanded when it is loaded: itself, whose only sink moves rows into the tables of its branches,
 * and behind it an outbox for each branch, with what the branch does not say for itself taken from the first. */
struct outbox_config {
	char *name;                     /* "orders"; of a branch "orders.search" */
	char *path;                     /* of a branch, where its settings stand: "orders.branches.search"; see outbox_path */
	char *where;
	const struct outbox_config *parent;     /* of a branch; NULL for all others */
	struct only_config only;                /* the same */
	const struct outbox_config *branches;   /* the first of them */
	size_t n_branches;
	char *table;                    /* schema.table */
	enum outbox_preset preset;
	char *reader;                   /* name of a reader driver */
	int64_t workers;
	int64_t batch_size;
	int64_t batch_max;
	enum settle_mode settle;
	enum order_mode order;
	int64_t lease_ms;               /* 0: the reader's own default */
	struct shards_config shards;
	struct wal_config wal;
	struct failure_config failure;
	enum published published;       /* what becomes of a row when every sink has it */
	int64_t retention_ms;           /* of rows that are marked or archived */
	struct partitions_config partitions;
	int64_t entity_max_rows;
	int64_t in_flight_bytes;        /* per worker */
	int64_t poll_interval_ms;
	enum wakeup_mode wakeup;
	struct column_config order_by;  /* "" : the id column */
	struct columns_config columns;
	struct route_config route;
	struct sink_config *sinks;
	size_t n_sinks;
};

/* What stands behind "outboxes." in the names of its settings. */
static inline const char *outbox_path(const struct outbox_config *o)
{
	return o->path ? o->path : o->name;
}

struct config {
	char *file;                     /* NULL when no file was read */
	char *node;
	int64_t heartbeat_ms;
	int64_t stop_timeout_ms;
	struct log_config log;
	struct database_config database;
	struct http_config http;
	struct outbox_config *outboxes;
	size_t n_outboxes;
};

#endif
