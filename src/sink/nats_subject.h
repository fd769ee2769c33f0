/* What a subject of NATS may be, as far as a message can be published to it. */
#ifndef POSTRIDER_SINK_NATS_SUBJECT_H
#define POSTRIDER_SINK_NATS_SUBJECT_H

#include "relay/route.h"

/* Servers take such a subject for something else, or end the connection over it. */
topic_fault nats_subject_fault;

#endif
