#include "cli/commands.h"

#include <string.h>

#include "base/macros.h"
#include "config/suggest.h"

const struct command *const commands[] = {
	&command_init,
	&command_check,
	&command_run,
	&command_status,
	&command_top,
	&command_explain,
	&command_dead,
	&command_entity,
	&command_pause,
	&command_resume,
	&command_replay,
#ifdef HAVE_KAFKA
	&command_verify,
#endif
	&command_completion,
	&command_help,
	&command_version,
	NULL,
};

const struct cli_exit_code cli_exit_codes[] = {
	{ CLI_OK, "done" },
	{ CLI_FAILED, "failed" },
	{ CLI_USAGE, "wrong command line" },
	{ CLI_SETTINGS, "wrong settings" },
	{ 0, NULL },
};

const char cli_purpose[] = "postrider carries the rows of a transactional outbox in PostgreSQL to a broker:\n"
			   "at least once, in order per entity, with many workers on many nodes.";

const struct command *command_find(const char *name)
{
	for (size_t i = 0; commands[i]; i++)
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	return NULL;
}

const char *command_nearest(const char *name)
{
	const char *names[ARRAY_SIZE(commands)];
	size_t n = 0;

	for (; commands[n]; n++)
		names[n] = commands[n]->name;
	return suggest_nearest(name, names, n);
}
