#include "cli/commands.h"

#include <string.h>

#include "base/macros.h"
#include "config/suggest.h"

const struct command *const commands[] = {
	&command_init,
	&command_check,
	&command_run,
	&command_status,
	&command_explain,
	&command_dead,
	&command_entity,
	&command_pause,
	&command_resume,
	&command_replay,
#ifdef HAVE_KAFKA
	&command_verify,
#endif
	&command_help,
	&command_version,
	NULL,
};

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
