/* From the settings of a webhook to how it is sent; and what `check` looks at. */
#ifndef POSTRIDER_SINK_WEBHOOK_CONF_H
#define POSTRIDER_SINK_WEBHOOK_CONF_H

#include "base/finding.h"
#include "config/config.h"
#include "sink/http.h"

/* Everything that can be wrong without asking anybody: URL, secrets, files. */
bool webhook_conf_check(const struct sink_config *sink, struct error *err);
struct http_options webhook_conf_http(const struct sink_config *sink);

/* Connects, shakes hands, and sends nothing. Blocks. */
void webhook_check(const struct sink_config *sink, struct finding_list *findings);

#endif
