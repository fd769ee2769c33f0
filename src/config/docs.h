/* What the option table says to people. docs/configuration.md and docs/postrider.example.yaml are checked in and must
 * equal this output; a unit test compares them. Called by `postrider help`. */
#ifndef POSTRIDER_CONFIG_DOCS_H
#define POSTRIDER_CONFIG_DOCS_H

#include <stdio.h>

void config_write_markdown(FILE *out);          /* docs/configuration.md */
void config_write_sample(FILE *out);            /* docs/postrider.example.yaml */
void config_write_help(FILE *out);              /* for a terminal of 80 columns */

#endif
