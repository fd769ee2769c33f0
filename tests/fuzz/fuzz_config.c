/* Any bytes are either settings or refused with at least one error. What the units take, they print and read again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/load.h"
#include "config/secret.h"
#include "config/units.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_quantity(const char *text, bool (*parse)(const char *, int64_t *),
			   void (*print)(struct buf *, int64_t))
{
	_cleanup_(buf_release) struct buf b = { .ceiling = 100 };
	int64_t value, again;

	if (!parse(text, &value))
		return;
	print(&b, value);
	if (value < 0 || !parse(buf_str(&b), &again) || again != value)
		abort();
}

static void check_file(const char *bytes, size_t size)
{
	struct config_request req = { .path = "fuzz" };
	struct config_errors errors = { 0 };
	struct config *config = NULL;
	bool ok = config_load_text(bytes, size, &req, &config, &errors);

	if (ok != (config != NULL) || ok != (errors.failures == 0) || (ok && config->n_outboxes == 0))
		abort();
	config_free(config);
	config_errors_release(&errors);
}

/* The same bytes as a flag and as a variable, where they meet other code. */
static void check_other_sources(const char *text)
{
	char *variable = mem_printf("POSTRIDER_OUTBOXES_OUTBOX_ROUTE_HEADERS=%s", text);
	const char *const environment[] = { variable, "POSTRIDER_OUTBOXES_OUTBOX_SINKS_0_TYPE=kafka", NULL };
	const char *const sets[] = { text };
	struct config_request req = { .environment = (char *const *)environment, .sets = sets, .n_sets = 1 };
	struct config_errors errors = { 0 };
	struct config *config = NULL;

	if (config_load(&req, &config, &errors) != (config != NULL))
		abort();
	config_free(config);
	config_errors_release(&errors);
	free(variable);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(mem_freep) char *text = mem_strndup((const char *)data, size);
	_cleanup_(mem_freep) char *shown = config_redact_url(text);

	if (config_url_has_secret(text) && !strstr(shown, "***"))
		abort();
	check_quantity(text, units_duration, units_add_duration);
	check_quantity(text, units_size, units_add_size);
	check_file((const char *)data, size);
	check_other_sources(text);
	return 0;
}
