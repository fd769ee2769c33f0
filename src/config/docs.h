/* What the option table says to people. docs/configuration.md and docs/postrider.example.yaml are checked in and must
 * equal this output; a unit test compares them. Called by `postrider help`. */
#ifndef POSTRIDER_CONFIG_DOCS_H
#define POSTRIDER_CONFIG_DOCS_H

#include <stddef.h>
#include <stdio.h>

void config_write_markdown(FILE *out);          /* docs/configuration.md */
void config_write_sample(FILE *out);            /* docs/postrider.example.yaml */
void config_write_help(FILE *out);              /* for a terminal of 80 columns */
void config_write_man(FILE *out);               /* postrider.yaml(5) */

/* What two of them say, in Markdown. */
extern const char config_intro[];
extern const char config_presets_intro[];
extern const struct config_preset {
	const char *key, *value;        /* "": none */
} config_presets[];
extern const size_t config_preset_count;

#endif
