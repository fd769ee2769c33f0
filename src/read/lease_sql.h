/* The statements of the reader `lease`: see lease.c for what is sent when, and why it is safe. */
#ifndef POSTRIDER_READ_LEASE_SQL_H
#define POSTRIDER_READ_LEASE_SQL_H

#include "pg/pipeline.h"
#include "read/front.h"
#include "read/settle.h"

enum {
	ST_SETTINGS = SETTLE_STATEMENTS,
	ST_FORGET,
	ST_RENEW,
	ST_FENCE,
	ST_RELEASE,
	ST_CLAIM,
	ST_CLAIM_FRONT,
	ST_READ,
	ST_READ_LARGE,
	ST_FRONT,
	ST_COUNT = ST_FRONT + FRONT_STATEMENTS_COUNT,
};

extern const struct statement lease_statements[ST_COUNT];

#endif
