/* postrider: argv to a command. */
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

int main(int argc, char **argv)
{
	_cleanup_(cli_release) struct cli cli = { 0 };

	return cli_parse(argc, argv, &cli) ? dispatch(&cli) : CLI_USAGE;
}
