/* What could stand at one place of a command line that is being written: `postrider completion words` asks, on behalf of a
 * shell. A row of a table of flags, or a command, names the function that knows; it calls propose_word for each word that
 * it knows of, and those that do not begin with what is already written are left out.
 *
 * The answer is a line for each word, with a tab and an explanation behind it if there is one. A word that ends in = or . is
 * to be continued without a blank. The line :files says that the names of files go there. */
#ifndef POSTRIDER_CLI_PROPOSE_H
#define POSTRIDER_CLI_PROPOSE_H

#include <stddef.h>
#include <stdio.h>

#include "base/buf.h"
#include "cli/options.h"

struct proposals {
	FILE *out;
	const struct cli *cli;          /* what stands before */
	const char *typed;              /* what there is of the word */
	size_t lead;                    /* bytes of it that belong to something else: "--outbox=" */
	struct buf last;                /* the word before: it is not said twice in a row */
};

/* Everything that could follow; the last of the words is the one that is being written, perhaps empty. `words[0]` is the
 * name of the program. Says on standard error what is wrong with the words before. */
void propose(FILE *out, int n_words, const char *const *words);

void propose_word(struct proposals *p, const char *word, const char *explanation);     /* NULL: none */

/* For the tables. Those that need the settings propose nothing when these cannot be read. */
void propose_files(struct proposals *p);
void propose_outboxes(struct proposals *p);
void propose_sink_names(struct proposals *p);
void propose_readers(struct proposals *p);
void propose_error_kinds(struct proposals *p);
void propose_commands(struct proposals *p);
void propose_settings(struct proposals *p);     /* KEY=VALUE, as --set takes it: propose_settings.c */

#endif
