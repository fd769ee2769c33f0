/* postrider.yaml(5) */
#include "config/docs.h"
#include "config/options.h"
#include "config/roff.h"

static void write_option(FILE *out, const struct option *o)
{
	_cleanup_(buf_release) struct buf path = { .ceiling = 1000 }, facts = { .ceiling = 4000 };

	option_add_path(&path, o);
	option_add_facts(&facts, o);
	roff_tag(out, buf_str(&path), "");
	roff_text(out, buf_str(&facts));
	roff_line_break(out);
	roff_text(out, o->doc);
}

static void write_section(FILE *out, const struct option_section *section)
{
	roff_subheading(out, section->title);
	roff_text(out, section->doc);
	for (size_t i = 0; i < option_count; i++) {
		if (option_in_section(&options[i], section))
			write_option(out, &options[i]);
	}
}

static void write_presets(FILE *out)
{
	roff_subheading(out, "Preset debezium");
	roff_text(out, config_presets_intro);
	for (size_t i = 0; i < config_preset_count; i++) {
		roff_tag(out, config_presets[i].key, "");
		roff_text(out, config_presets[i].value[0] ? config_presets[i].value : "none");
	}
}

void config_write_man(FILE *out)
{
	roff_begin(out, "postrider.yaml", 5, "settings of postrider");
	roff_heading(out, "Description");
	roff_text(out, config_intro);
	roff_heading(out, "Settings");
	for (size_t i = 0; i < option_section_count; i++)
		write_section(out, &option_sections[i]);
	write_presets(out);
	roff_heading(out, "See also");
	roff_text(out, "`postrider`(1)");
}
