/* postrider: argv to a command. */
#include <malloc.h>
#include <stdio.h>

#include "base/macros.h"
#include "cli/commands.h"
#include "cli/options.h"

static int dispatch(const struct cli *cli)
{
	if (cli->help)
		return command_help.run(cli);
	if (cli->version)
		return command_version.run(cli);
	if (cli->command)
		return cli->command->run(cli);
	command_help.run(cli);
	return CLI_USAGE;
}

/* Batches come and go many times a second. By default the allocator would give their memory back to the kernel each time
 * and fetch it again page by page, and keep a heap for every thread. */
static void tune_allocator(void)
{
	mallopt(M_TRIM_THRESHOLD, 32 << 20);
	mallopt(M_MMAP_THRESHOLD, 4 << 20);
	mallopt(M_ARENA_MAX, 4);
}

int main(int argc, char **argv)
{
	_cleanup_(cli_release) struct cli cli = { 0 };

	tune_allocator();

	return cli_parse(argc, argv, &cli) ? dispatch(&cli) : CLI_USAGE;
}
