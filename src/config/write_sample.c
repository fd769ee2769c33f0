/* docs/postrider.example.yaml: every setting; those without an example of their own as a comment with the default.
 * A # with one blank behind it begins a sentence. Taking away any other # gives a setting. */
#include <string.h>

#include "base/mem.h"
#include "config/docs.h"
#include "config/options.h"
#include "config/wrap.h"

enum { COLUMNS = 100 };

static const char head[] =
	"# Settings of postrider. docs/configuration.md explains them and how to set them by environment and flags.\n"
	"# Lines such as `#workers: 4` show a default. Written by `postrider help --sample`.\n\n";

/* The sections of the option table as parts of one file. */
static const struct part {
	enum option_scope scope;
	const char *prefix;
	const char *heading;            /* lines that open the part */
	const char *heading_indent;
	const char *indent;             /* of its settings; with a # when the whole part is commented out */
} parts[] = {
	{ SCOPE_PROCESS, "", "", "", "" },
	{ SCOPE_PROCESS, "log.", "log:\n", "", "  " },
	{ SCOPE_PROCESS, "database.", "database:\n", "", "  " },
	{ SCOPE_PROCESS, "http.", "http:\n", "", "  " },
	{ SCOPE_OUTBOX, "", "outboxes:\n  orders:\n", "", "    " },
	{ SCOPE_OUTBOX, "shards.", "    shards:\n", "    ", "      " },
	{ SCOPE_OUTBOX, "failure.", "    failure:\n", "    ", "      " },
	{ SCOPE_OUTBOX, "partitions.", "    partitions:\n", "    ", "      " },
	{ SCOPE_OUTBOX, "wal.", "    wal:\n", "    ", "      " },
	{ SCOPE_OUTBOX, "columns.", "    columns:\n", "    ", "      " },
	{ SCOPE_OUTBOX, "route.", "    route:\n", "    ", "      " },
	{ SCOPE_SINK, "", "    sinks:\n      - type: kafka\n", "    ", "        " },
	{ SCOPE_KAFKA, "", "", "", "        " },
	{ SCOPE_NATS, "", "      #- type: nats\n", "      ", "      #  " },
	{ SCOPE_POSTGRES, "", "      #- type: postgres\n", "      ", "      #  " },
	{ SCOPE_QUEUE, "", "      #- type: queue\n", "      ", "      #  " },
	{ SCOPE_RABBITMQ, "", "      #- type: rabbitmq\n", "      ", "      #  " },
	{ SCOPE_REDIS, "", "      #- type: redis\n", "      ", "      #  " },
	{ SCOPE_SQS, "", "      #- type: sqs\n", "      ", "      #  " },
	{ SCOPE_STDOUT, "", "      #- type: stdout\n", "      ", "      #  " },
	{ SCOPE_WEBHOOK, "", "      #- type: webhook\n", "      ", "      #  " },
	{ SCOPE_BRANCH, "only.",
	  "  #shop:\n  #  table: public.shop_outbox\n  #  branches:\n  #    search:\n  #      sinks:\n  #        - type: stdout\n"
	  "  #      only:\n", "  ", "  #        " },
};

/* YAML would take these for something else than text. */
static bool needs_quotes(const struct option *o, const char *text)
{
	if (o->type != OPTION_TEXT && o->type != OPTION_COLUMN)
		return false;
	return text[0] == '\0' || strchr("{[-*&!|>%@`#", text[0]) != NULL;
}

static void write_option(FILE *out, const struct option *o, const char *name, const char *indent)
{
	_cleanup_(mem_freep) char *prose = mem_printf("%s# ", indent);
	bool part_is_off = strchr(indent, '#') != NULL;
	const char *value = o->sample ? o->sample : o->fallback;
	const char *quote = needs_quotes(o, value) ? "\"" : "";

	wrap_text(out, prose, COLUMNS, o->doc);
	fprintf(out, "%s%s%s: %s%s%s\n", indent, o->sample || part_is_off ? "" : "#", name, quote, value, quote);
}

static void write_part(FILE *out, const struct part *part, const struct option_section *section)
{
	_cleanup_(mem_freep) char *prose = mem_printf("%s# ", part->heading_indent);

	if (part->heading[0] && section->doc[0])
		wrap_text(out, prose, COLUMNS, section->doc);
	fputs(part->heading, out);
	for (size_t i = 0; i < option_count; i++) {
		const char *name = option_in_section(&options[i], section);

		/* The type of a sink stands in the heading: a list's item begins with it. */
		if (name && !(part->scope == SCOPE_SINK && strcmp(name, "type") == 0))
			write_option(out, &options[i], name, part->indent);
	}
}

void config_write_sample(FILE *out)
{
	fputs(head, out);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		if (i > 0 && parts[i].heading[0])
			fputc('\n', out);
		for (size_t k = 0; k < option_section_count; k++) {
			if (option_sections[k].scope == parts[i].scope &&
			    strcmp(option_sections[k].prefix, parts[i].prefix) == 0)
				write_part(out, &parts[i], &option_sections[k]);
		}
	}
}
