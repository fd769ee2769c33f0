/* docs/metrics.md */
#include "base/macros.h"
#include "observe/metrics.h"

static const char intro[] =
	"# Metrics and health\n"
	"\n"
	"<!-- Written by `postrider help --metrics` from src/observe/metrics.def. Do not edit. -->\n"
	"\n"
	"A relay serves both over HTTP when it is told where:\n"
	"\n"
	"```yaml\n"
	"http:\n"
	"  listen: 127.0.0.1:9187\n"
	"```\n"
	"\n"
	"| path | answers |\n"
	"|---|---|\n"
	"| `/metrics` | all metrics below, in Prometheus' text format |\n"
	"| `/healthz` | 200 while every loop turns: each worker's and the heart's, within `http.alive_within`. 503 means that a "
	"restart would help, so it is what a liveness probe asks. A database or a sink that is away does not make it fail |\n"
	"| `/readyz` | 200 while the database and the sinks can be used, and no row waits for longer than `http.ready_max_lag`; 503 "
	"otherwise. Only the node that reads the figures of the tables (below) knows of rows that wait |\n"
	"\n"
	"The last two answer with JSON, and with the reasons when they fail:\n"
	"\n"
	"```json\n"
	"{\"reasons\":[{\"what\":\"sink\",\"outbox\":\"orders\",\"name\":\"kafka\",\"reason\":\"no broker can be reached\"}],\"status\":\"failing\"}\n"
	"```\n"
	"\n"
	"`what` is `worker` (`name` is its number), `sink`, `lag`, `heart`, `database`, or `start` while the process waits for the\n"
	"database or another node.\n"
	"\n"
	"## Who may read it\n"
	"\n"
	"On loopback everybody on the machine, but no web page: the Host of a request must be an address or `localhost`, so a foreign\n"
	"name that was made to lead here is refused. For other machines listen on another address, which takes a token:\n"
	"\n"
	"```yaml\n"
	"http:\n"
	"  listen: 0.0.0.0:9187\n"
	"  token_file: /etc/postrider/metrics-token\n"
	"```\n"
	"\n"
	"Then everything but `/healthz` wants `Authorization: Bearer` with it. There is no TLS: put a proxy in front where the network\n"
	"is not yours. Only GET and HEAD are served, at most 32 connections at a time, one request for each.\n"
	"\n"
	"```yaml\n"
	"# prometheus.yml\n"
	"scrape_configs:\n"
	"  - job_name: postrider\n"
	"    authorization: {credentials_file: /etc/prometheus/postrider-token}\n"
	"    static_configs: [{targets: [\"relay-1:9187\", \"relay-2:9187\"]}]\n"
	"```\n"
	"\n"
	"## What a node knows of itself\n"
	"\n"
	"Counted by each worker for itself and added up when somebody asks; a row pays a few additions and for reading\n"
	"its `created_at`. Counters begin at 0 with the process. Sum them over nodes: `sum by (outbox) (rate(postrider_published_rows_total[1m]))`.\n"
	"\n";

static const char tables_intro[] =
	"\n"
	"## What one node reads from the database for all\n"
	"\n"
	"Once each `http.survey_interval` one node reads these; a request never does. For each table it is, among the nodes that serve\n"
	"metrics, have the table in their settings and are alive, the one with the lowest number in `postrider status`. The\n"
	"others show no such series, so `sum` and `max` over nodes are right. While one node takes over from another, two may show the\n"
	"same figure for one interval: alerts had better use `max by (outbox)`. What could not be read is left out, not repeated:\n"
	"`postrider_survey_failures_total` counts it, and `survey.failed` in the log says why.\n"
	"\n";

static const char outro[] =
	"\n"
	"### What that costs the database\n"
	"\n"
	"No statement reads more than 100,000 rows of an outbox, and each has 5 s at most. These are the plans for the recommended\n"
	"table with 2,000,000 rows in it, which are all pending. Count them, as far as that goes:\n"
	"\n"
	"```\n"
	"EXPLAIN (ANALYZE, COSTS OFF) SELECT count(*) FROM (SELECT FROM public.outbox o\n"
	"  WHERE true AND (o.scheduled_for IS NULL OR o.scheduled_for <= now()) LIMIT 100001) AS s;\n"
	" Aggregate (actual time=70.631..70.633 rows=1 loops=1)\n"
	"   ->  Limit (actual time=0.005..60.793 rows=100001 loops=1)\n"
	"         ->  Seq Scan on outbox o (actual time=0.004..41.068 rows=100001 loops=1)\n"
	"               Filter: ((scheduled_for IS NULL) OR (scheduled_for <= now()))\n"
	" Execution Time: 70.647 ms\n"
	"```\n"
	"\n"
	"There are more, so the figure is what the planner expects, from which scheduled rows are taken away. No row is read:\n"
	"\n"
	"```\n"
	"EXPLAIN SELECT FROM public.outbox o WHERE true;\n"
	" Index Only Scan using outbox_pkey on outbox o  (cost=0.43..51944.43 rows=2000000 width=0)\n"
	"```\n"
	"\n"
	"And the age of the first:\n"
	"\n"
	"```\n"
	"EXPLAIN (ANALYZE, COSTS OFF) SELECT o.created_at FROM public.outbox AS o\n"
	"  WHERE true AND (o.scheduled_for IS NULL OR o.scheduled_for <= now()) ORDER BY o.id LIMIT 1;\n"
	" Limit (actual time=0.015..0.015 rows=1 loops=1)\n"
	"   ->  Index Scan using outbox_pkey on outbox o (actual time=0.014..0.014 rows=1 loops=1)\n"
	"         Filter: ((scheduled_for IS NULL) OR (scheduled_for <= now()))\n"
	" Execution Time: 0.024 ms\n"
	"```\n"
	"\n"
	"Sizes and tuples come from the catalog and the statistics, held entities and dead letters from small tables of ours.\n"
	"\n"
	"## Alerts\n"
	"\n"
	"```yaml\n"
	"groups:\n"
	"  - name: postrider\n"
	"    rules:\n"
	"      - alert: OutboxLags\n"
	"        expr: max by (outbox) (postrider_oldest_pending_seconds) > 60\n"
	"        for: 2m\n"
	"      - alert: OutboxUnwatched      # no node, or none that can read the tables\n"
	"        expr: absent(postrider_pending_rows)\n"
	"        for: 2m\n"
	"      - alert: OutboxSinkAway\n"
	"        expr: max by (outbox, sink) (postrider_sink_breaker_open) > 0\n"
	"        for: 1m\n"
	"      - alert: OutboxEntitiesBlocked\n"
	"        expr: max by (outbox) (postrider_blocked_entities) > 0\n"
	"      - alert: OutboxDeadLetters\n"
	"        expr: max by (outbox) (postrider_dead_letters) > 0\n"
	"      - alert: OutboxSlotRetains\n"
	"        expr: max by (table, slot) (postrider_slot_retained_bytes) > 1e9\n"
	"      - alert: OutboxSlotLost\n"
	"        expr: max by (table, slot) (postrider_slot_state{state=~\"lost|gone\"}) > 0\n"
	"      - alert: OutboxNodeSilent\n"
	"        expr: max by (state) (postrider_nodes{state!=\"alive\"}) > 0\n"
	"        for: 1m\n"
	"      - alert: OutboxOldTransaction # keeps dead rows from being removed\n"
	"        expr: max(postrider_oldest_transaction_seconds) > 3600\n"
	"```\n"
	"\n"
	"Contention: `sum by (outbox) (rate(postrider_claim_lost_total[5m])) / sum by (outbox)\n"
	"(rate(postrider_claim_candidates_total[5m]))`. Latency: `histogram_quantile(0.99, sum by (outbox, le)\n"
	"(rate(postrider_created_to_ack_seconds_bucket[5m])))`.\n";

static void write_labels(FILE *out, const char *labels)
{
	if (*labels)
		fputc('`', out);
	for (const char *c = labels; *c; c++)
		fputs(*c == ',' ? "`, `" : (char[]){ *c, '\0' }, out);
	if (*labels)
		fputc('`', out);
}

static void write_group(FILE *out, enum metric_group group)
{
	fputs("| metric | type | labels | meaning |\n|---|---|---|---|\n", out);
	for (size_t i = 0; i < METRIC_COUNT; i++) {
		if (metrics[i].group != group)
			continue;
		fprintf(out, "| `%s` | %s | ", metrics[i].name, metric_type_name(metrics[i].type));
		write_labels(out, metrics[i].labels);
		fprintf(out, " | %s |\n", metrics[i].help);
	}
}

void metrics_write_markdown(FILE *out)
{
	fputs(intro, out);
	write_group(out, METRIC_NODE);
	fputs(tables_intro, out);
	write_group(out, METRIC_TABLES);
	fputs(outro, out);
}
