/* docs/configuration.md */
#include "base/macros.h"
#include "config/docs.h"
#include "config/options.h"

static const char head[] =
	"# Configuration\n"
	"\n"
	"<!-- Written by `postrider help --markdown` from src/config/options.def. Do not edit. -->\n"
	"\n";

const char config_intro[] =
	"Settings come from one YAML file, from the environment and from flags. What comes later in this list\n"
	"wins:\n"
	"\n"
	"1. the defaults below, or those of the outbox's `preset`;\n"
	"2. the file: `-c FILE`, else `POSTRIDER_CONFIG`, else `postrider.yaml` in the working directory when\n"
	"   it exists;\n"
	"3. the environment: `POSTRIDER_` and the path of the setting in capitals, with `_` for every `.` and\n"
	"   `-`, as in `POSTRIDER_OUTBOXES_ORDERS_WORKERS=8`. An empty variable counts as unset.\n"
	"   `OUTBOX_WORKER_COUNT`, `OUTBOX_BATCH_SIZE` and `OUTBOX_POLL_INTERVAL` set every outbox; a\n"
	"   variable that names an outbox wins over them;\n"
	"4. flags: `--set outboxes.orders.workers=8`.\n"
	"\n"
	"[postrider.example.yaml](postrider.example.yaml) is a file with everything in it. Without a file\n"
	"there is one outbox named `outbox`, so the relay can be set up by environment alone:\n"
	"\n"
	"```sh\n"
	"POSTRIDER_DATABASE_URL=postgresql://app@db/shop \\\n"
	"POSTRIDER_OUTBOXES_OUTBOX_SINKS_0_TYPE=kafka \\\n"
	"POSTRIDER_OUTBOXES_OUTBOX_SINKS_0_BROKERS=kafka:9092 \\\n"
	"postrider run\n"
	"```\n"
	"\n"
	"Everything that is wrong is told at once, with file, line and column, before anything starts; the\n"
	"exit code is 78. A variable that begins with `POSTRIDER_` and is no setting only gets a warning,\n"
	"because container platforms invent such names.\n"
	"\n"
	"**Values.** Durations have a unit: `250ms`, `5s`, `2m`, `1h`. So do sizes: `100B`, `512KiB`, `4MiB`,\n"
	"`1GiB`. Switches are `true` or `false`. A mapping is a YAML mapping in the file and in a variable\n"
	"(`{compression.type: lz4}`); a flag sets one name of it (`--set\n"
	"outboxes.orders.sinks.0.properties.compression.type=lz4`). Each source adds to the names of the one\n"
	"before. YAML anchors, aliases and tags are not supported.\n"
	"\n"
	"**Secrets.** Put passwords into files and name them with the `…_file` settings, or use PGPASSWORD\n"
	"and PGPASSFILE. A password in a URL is hidden in logs and in the output of `check`, and such a URL\n"
	"is refused in `--set`, because other users can see the arguments of a process.\n";

const char config_presets_intro[] = "`preset: debezium` changes these defaults of an outbox:";

const struct config_preset config_presets[] = {
#define PRESET(preset, key, value) { key, value },
#include "config/presets.def"
#undef PRESET
};
const size_t config_preset_count = ARRAY_SIZE(config_presets);

static void write_default(FILE *out, const struct option *o)
{
	if (o->flags & OPTION_REQUIRED)
		fputs("must be set", out);
	else if (o->fallback[0] == '\0')
		fputs(o->fallback_note ? o->fallback_note : "none", out);
	else if (o->fallback_note)
		fprintf(out, "`%s`, %s", o->fallback, o->fallback_note);
	else
		fprintf(out, "`%s`", o->fallback);
}

static void write_row(FILE *out, const struct option *o, const char *name)
{
	_cleanup_(buf_release) struct buf type = { .ceiling = 1000 };

	option_describe(&type, o);
	fprintf(out, "| `%s` | %s | ", name, buf_str(&type));
	write_default(out, o);
	fprintf(out, " | %s", o->doc);
	if (o->variable)
		fprintf(out, " `%s` sets it for every outbox.", o->variable);
	fputs(" |\n", out);
}

static void write_section(FILE *out, const struct option_section *section)
{
	bool first = true;

	fprintf(out, "\n## %s\n\n", section->title);
	if (section->doc[0])
		fprintf(out, "%s\n\n", section->doc);
	for (size_t i = 0; i < option_count; i++) {
		const char *name = option_in_section(&options[i], section);
		_cleanup_(buf_release) struct buf path = { .ceiling = 1000 };

		if (!name)
			continue;
		option_add_path(&path, &options[i]);
		if (first && path.len > strlen(name))
			fprintf(out, "Below `%.*s`:\n\n", (int)(path.len - strlen(name) - 1), buf_str(&path));
		if (first)
			fputs("| setting | value | default | meaning |\n|---|---|---|---|\n", out);
		first = false;
		write_row(out, &options[i], name);
	}
}

static void write_presets(FILE *out)
{
	fprintf(out, "\n## Preset debezium\n\n%s\n\n| setting | default |\n|---|---|\n", config_presets_intro);
	for (size_t i = 0; i < config_preset_count; i++) {
		if (config_presets[i].value[0])
			fprintf(out, "| `%s` | `%s` |\n", config_presets[i].key, config_presets[i].value);
		else
			fprintf(out, "| `%s` | none |\n", config_presets[i].key);
	}
}

void config_write_markdown(FILE *out)
{
	fputs(head, out);
	fputs(config_intro, out);
	for (size_t i = 0; i < option_section_count; i++)
		write_section(out, &option_sections[i]);
	write_presets(out);
}
