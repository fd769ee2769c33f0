/* `postrider run`: relays until it is told to stop. */
#include "base/log.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "config/load.h"
#include "relay/supervisor.h"

static int run(const struct cli *cli)
{
	_cleanup_(config_freep) struct config *config = NULL;
	struct error err = { 0 };

	if (!cli_load_config(cli, false, &config))
		return CLI_SETTINGS;
	log_setup(config->log.level, config->log.format);
	if (supervisor_run(config, &err))
		return CLI_OK;
	log_error("relay.failed", F_ERROR(&err));
	return err.kind == ERROR_CONFIG ? CLI_SETTINGS : CLI_FAILED;
}

const struct command command_run = {
	.name = "run",
	.summary = "relay rows until told to stop",
	.usage = "",
	.details = "Publishes the rows of every configured outbox to its sinks, at least once and in order per entity. Several\n"
		   "processes may run at the same time, on one machine or many; they share the work.\n"
		   "\n"
		   "SIGTERM or SIGINT: claims no more, waits until what is on its way is settled, for stop_timeout at most, and\n"
		   "ends with exit code 0. A second signal ends it at once; what was on its way is then published again later.",
	.run = run,
};
