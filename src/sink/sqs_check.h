/* For `check`: are there credentials, does the service take them, and is the queue there? */
#ifndef POSTRIDER_SINK_SQS_CHECK_H
#define POSTRIDER_SINK_SQS_CHECK_H

#include "base/finding.h"
#include "sink/sqs_sender.h"

/* `topic` NULL: it differs by row. Blocks. */
void sqs_check(const struct sqs_service *service, const char *topic, struct finding_list *findings);

#endif
