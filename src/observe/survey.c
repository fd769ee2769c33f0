#include "observe/survey.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "observe/survey_figures.h"
#include "pg/conn.h"
#include "pg/exec.h"

enum { STATEMENT_MS = 5000, LOCK_MS = 1000, FIRST_LOOK_MS = 200 };
#define TEXT_MAX ((size_t)8 << 20)

struct survey {
	const struct config *config;
	const struct node *node;
	const struct outbox *outboxes;
	struct database_config database;        /* with timeouts of our own */
	pthread_t thread;
	int stop_fd;
	PGconn *conn;                           /* NULL: not connected; the thread's own, and so is what follows */
	struct table_figures *tables;           /* of the round under way */
	struct database_figures whole;
	bool failing;                           /* said so already */

	pthread_mutex_t lock;                   /* guards what follows */
	int socket;                             /* of the connection, ours to shut down; -1: not connected */
	char *text;                             /* NULL: nothing to show */
	int64_t *oldest_ms;                     /* by outbox */
	uint64_t failures;
};

/* --- the connection ------------------------------------------------------------------------------------------------- */

/* A second descriptor of the connection, so that a stop shuts down this one and no other. */
static void share_socket(struct survey *s)
{
	pthread_mutex_lock(&s->lock);
	if (s->socket >= 0)
		close(s->socket);
	s->socket = s->conn ? fcntl(PQsocket(s->conn), F_DUPFD_CLOEXEC, 0) : -1;
	pthread_mutex_unlock(&s->lock);
}

static void disconnect(struct survey *s)
{
	pg_closep(&s->conn);
	s->conn = NULL;
	share_socket(s);
}

static bool connect_survey(struct survey *s, struct error *err)
{
	if (s->conn)
		return true;
	if (!pg_connect(&s->database, "survey", s->stop_fd, &s->conn, err))
		return false;
	share_socket(s);
	/* Along indexes, whatever the statistics say, and with one process of the server. */
	return pg_apply_reader_settings(s->conn, &s->database, err);
}

static bool wait_or_stop(const struct survey *s, int64_t ms)
{
	struct pollfd p = { .fd = s->stop_fd, .events = POLLIN };

	return poll(&p, 1, (int)ms) == 0;
}

/* --- one round ------------------------------------------------------------------------------------------------------ */

/* Tables that nodes ahead of us survey. What a node of another version writes may have another shape. */
static const char select_taken[] =
	"SELECT DISTINCT t.name #>> '{}' FROM postrider.node n CROSS JOIN jsonb_path_query(n.state, '$.surveys[*]') AS t(name)"
	" WHERE n.id < $1::bigint AND NOT " NODE_IS_SILENT " AND NOT " NODE_IS_GONE;

static bool is_taken(const PGresult *taken, const char *table)
{
	for (int i = 0; i < PQntuples(taken); i++)
		if (strcmp(PQgetvalue(taken, i, 0), table) == 0)
			return true;
	return false;
}

/* One that fails does not hide the others. */
static void failed(struct survey *s, const char *what, const struct error *err)
{
	pthread_mutex_lock(&s->lock);
	s->failures++;
	pthread_mutex_unlock(&s->lock);
	if (!s->failing && wait_or_stop(s, 0))
		log_warn("survey.failed", F_STR("of", what), F_ERROR(err),
			 F_STR("meaning", "metrics of tables are not shown until this works again"));
	s->failing = true;
}

static bool is_lost(const struct survey *s)
{
	return !s->conn || PQstatus(s->conn) != CONNECTION_OK;
}

/* False: something could not be read. */
static bool read_all(struct survey *s, const PGresult *taken)
{
	struct error err = { 0 };
	bool ok = true;

	for (size_t i = 0; i < s->config->n_outboxes && !is_lost(s); i++) {
		const struct outbox *o = &s->outboxes[i];

		if (is_taken(taken, o->table->name) ||
		    table_figures_read(s->conn, o->config, o->table->name, &s->tables[i], &err))
			continue;
		failed(s, o->config->name, &err);
		ok = false;
	}
	if (PQntuples(taken) == 0 && !is_lost(s) && !database_figures_read(s->conn, &s->whole, &err)) {
		failed(s, "the database", &err);
		ok = false;
	}
	return ok;
}

static void show(struct survey *s, int64_t began_us)
{
	_cleanup_(buf_release) struct buf text = { 0 };
	struct metrics_writer w;

	buf_init(&text, TEXT_MAX);
	metrics_begin(&w, &text);
	survey_figures_write(s->tables, s->config->n_outboxes, &s->whole, (double)(clock_us() - began_us) / 1e6, &w);
	pthread_mutex_lock(&s->lock);
	free(s->text);
	s->text = text.overflow ? NULL : buf_take(&text);
	for (size_t i = 0; i < s->config->n_outboxes; i++)
		s->oldest_ms[i] = s->tables[i].known ? s->tables[i].view.oldest_ms : -1;
	pthread_mutex_unlock(&s->lock);
}

static void forget(struct survey *s)
{
	for (size_t i = 0; i < s->config->n_outboxes; i++)
		table_figures_release(&s->tables[i]);
	database_figures_release(&s->whole);
}

static bool look(struct survey *s, struct error *err)
{
	_cleanup_(mem_freep) char *id = mem_printf("%lld", (long long)atomic_load(&s->node->id));
	_cleanup_(pg_result_clearp) PGresult *taken = NULL;

	return connect_survey(s, err) && pg_query(s->conn, "look who surveys the outboxes", select_taken, 1,
						  (const char *const[]){ id }, &taken, err) &&
	       read_all(s, taken);
}

static void survey_round(struct survey *s)
{
	struct error err = { 0 };
	int64_t began_us = clock_us();

	if (look(s, &err)) {
		if (s->failing)
			log_info("survey.back");
		s->failing = false;
	} else if (err.kind != ERROR_NONE) {
		failed(s, "the nodes", &err);
	}
	show(s, began_us);
	forget(s);
	if (is_lost(s))
		disconnect(s);
}

static void *survey_main(void *arg)
{
	struct survey *s = arg;
	int64_t pause = FIRST_LOOK_MS;

	while (wait_or_stop(s, pause)) {
		/* Without a number nobody knows whose turn it is. */
		if (atomic_load(&s->node->id) == 0)
			continue;
		survey_round(s);
		pause = s->config->http.survey_interval_ms;
	}
	return NULL;
}

/* --- for others ----------------------------------------------------------------------------------------------------- */

struct survey *survey_start(const struct config *config, const struct node *node, const struct outbox *outboxes)
{
	struct survey *s = mem_new(struct survey);

	s->config = config;
	s->node = node;
	s->outboxes = outboxes;
	s->database = config->database;
	s->database.statement_timeout_ms = MIN(s->database.statement_timeout_ms, STATEMENT_MS);
	s->database.lock_timeout_ms = MIN(s->database.lock_timeout_ms, LOCK_MS);
	s->database.idle_session_timeout_ms = MAX(s->database.idle_session_timeout_ms, 3 * config->http.survey_interval_ms);
	s->tables = mem_new_array(struct table_figures, config->n_outboxes);
	s->oldest_ms = mem_new_array(int64_t, config->n_outboxes);
	for (size_t i = 0; i < config->n_outboxes; i++)
		s->oldest_ms[i] = -1;
	s->socket = -1;
	pthread_mutex_init(&s->lock, NULL);
	s->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (s->stop_fd < 0 || pthread_create(&s->thread, NULL, survey_main, s) != 0)
		abort();        /* out of descriptors or threads at start */
	return s;
}

void survey_stop(struct survey *s)
{
	if (!s)
		return;
	eventfd_write(s->stop_fd, 1);
	/* What waits for the server finds the connection gone. */
	pthread_mutex_lock(&s->lock);
	if (s->socket >= 0)
		shutdown(s->socket, SHUT_RDWR);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	disconnect(s);
	pthread_mutex_destroy(&s->lock);
	close(s->stop_fd);
	free(s->tables);
	free(s->oldest_ms);
	free(s->text);
	free(s);
}

void survey_write(struct survey *s, struct buf *out)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	if (s->text)
		buf_add_str(out, s->text);
	pthread_mutex_unlock(&s->lock);
}

uint64_t survey_failures(struct survey *s)
{
	uint64_t failures;

	pthread_mutex_lock(&s->lock);
	failures = s->failures;
	pthread_mutex_unlock(&s->lock);
	return failures;
}

int64_t survey_oldest_ms(struct survey *s, size_t outbox)
{
	int64_t oldest;

	pthread_mutex_lock(&s->lock);
	oldest = s->oldest_ms[outbox];
	pthread_mutex_unlock(&s->lock);
	return oldest;
}
