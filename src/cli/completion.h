/* Scripts by which shells complete command lines: the files of the folder completion/, as meson puts them into a table. */
#ifndef POSTRIDER_CLI_COMPLETION_H
#define POSTRIDER_CLI_COMPLETION_H

struct completion_script {
	const char *shell;
	const char *text;
};

extern const struct completion_script completion_scripts[];     /* ended by a row without a shell */

#endif
