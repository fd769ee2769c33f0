/* What JetStream answers: to a message that was published, and to questions about streams. */
#ifndef POSTRIDER_SINK_NATS_ANSWER_H
#define POSTRIDER_SINK_NATS_ANSWER_H

#include <stdbool.h>

#include "base/slice.h"

struct nats_answer {
	bool refused;                   /* then code, class and description say why */
	int code, class;
	char description[256];
	char stream[256];               /* that has the message, or the first of those that were asked for; "": none */
};

/* False when it is not an answer of JetStream. */
bool nats_answer_read(struct slice json, struct nats_answer *ret);

#endif
