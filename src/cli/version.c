#include <libpq-fe.h>
#include <stdio.h>
#include <yaml.h>
#ifdef HAVE_KAFKA
#include <librdkafka/rdkafka.h>
#endif
#ifdef HAVE_REDIS
#include <hiredis/hiredis.h>
#endif
#ifdef HAVE_RABBITMQ
#include <amqp.h>
#endif
#ifdef HAVE_NATS
#include <nats/nats.h>
#endif
#ifdef HAVE_HTTP
#include <curl/curl.h>
#endif

#include "base/macros.h"
#include "cli/commands.h"
#include "read/reader.h"
#include "sink/sink.h"

static const char *libpq_version(void)
{
	static char text[32];

	snprintf(text, sizeof(text), "%d.%d", PQlibVersion() / 10000, PQlibVersion() % 10000);
	return text;
}

#ifdef HAVE_REDIS
static const char *hiredis_version(void)
{
	static char text[32];

	snprintf(text, sizeof(text), "%d.%d.%d", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
	return text;
}
#endif

#ifdef HAVE_HTTP
static const char *curl_library_version(void)
{
	return curl_version_info(CURLVERSION_NOW)->version;
}
#endif

static const struct library {
	const char *name;
	const char *(*version)(void);
} libraries[] = {
	{ "libpq", libpq_version },
	{ "libyaml", yaml_get_version_string },
#ifdef HAVE_KAFKA
	{ "librdkafka", rd_kafka_version_str },
#endif
#ifdef HAVE_REDIS
	{ "hiredis", hiredis_version },
#endif
#ifdef HAVE_RABBITMQ
	{ "librabbitmq", amqp_version },
#endif
#ifdef HAVE_NATS
	{ "libnats", nats_GetVersion },
#endif
#ifdef HAVE_HTTP
	{ "libcurl", curl_library_version },
#endif
};

static int run(_unused_ const struct cli *cli)
{
	printf("postrider %s\n\nlibraries:\n", POSTRIDER_VERSION);
	for (size_t i = 0; i < ARRAY_SIZE(libraries); i++)
		printf("  %-12s %s\n", libraries[i].name, libraries[i].version());
	puts("readers:");
	for (size_t i = 0; reader_drivers[i]; i++)
		printf("  %-12s %s\n", reader_drivers[i]->name, reader_drivers[i]->summary);
	puts("sinks:");
	for (size_t i = 0; sink_drivers[i]; i++)
		printf("  %-12s %s\n", sink_drivers[i]->name, sink_drivers[i]->summary);
	return CLI_OK;
}

const struct command command_version = {
	.name = "version",
	.summary = "show version, libraries, readers and sinks",
	.usage = "",
	.details = "Also as `postrider --version`.",
	.run = run,
};
