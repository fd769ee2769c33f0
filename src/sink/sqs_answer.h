/* What SQS says to SendMessageBatch: each entry is stored, or refused with a reason of its own. */
#ifndef POSTRIDER_SINK_SQS_ANSWER_H
#define POSTRIDER_SINK_SQS_ANSWER_H

#include <stdbool.h>

#include "aws/call.h"
#include "base/slice.h"

enum { SQS_BATCH_MAX = 10 };

enum sqs_fate { SQS_UNKNOWN, SQS_STORED, SQS_REFUSED };

struct sqs_answer {
	enum sqs_fate fate[SQS_BATCH_MAX];              /* by the number of the entry */
	struct aws_refusal why[SQS_BATCH_MAX];          /* of those that are refused */
};

/* False when it is not such an answer: nothing is known of any entry then. An entry of which two things are said is unknown,
 * too. */
bool sqs_answer_read(struct slice json, struct sqs_answer *ret);

#endif
