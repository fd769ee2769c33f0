/* `postrider help settings`: the option table for a terminal. */
#include "config/docs.h"
#include "config/options.h"
#include "config/wrap.h"

enum { COLUMNS = 80 };

static void write_option(FILE *out, const struct option *o)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = 4000 };

	option_add_path(&b, o);
	fprintf(out, "  %s\n", buf_str(&b));
	buf_clear(&b);
	option_add_facts(&b, o);
	wrap_text(out, "      ", COLUMNS, buf_str(&b));
	wrap_text(out, "      ", COLUMNS, o->doc);
}

void config_write_help(FILE *out)
{
	fputs("Settings come from a YAML file, the environment (POSTRIDER_ and the path in\n"
	      "capitals, _ for . and -) and --set path=value; later ones win.\n",
	      out);
	for (size_t i = 0; i < option_section_count; i++) {
		fprintf(out, "\n%s\n", option_sections[i].title);
		for (size_t k = 0; k < option_count; k++) {
			if (option_in_section(&options[k], &option_sections[i]))
				write_option(out, &options[k]);
		}
	}
}
