/* For `check`: whether a server can be reached, and whether there is a stream for what we publish. */
#ifndef POSTRIDER_SINK_NATS_CHECK_H
#define POSTRIDER_SINK_NATS_CHECK_H

#include "base/finding.h"
#include "config/config.h"
#include "sink/nats_conf.h"

/* `topic` is the subject that every row goes to, NULL where it differs by row. Blocks. */
void nats_check(const struct sink_config *config, const struct nats_servers *servers, const char *topic,
		struct finding_list *findings);

#endif
