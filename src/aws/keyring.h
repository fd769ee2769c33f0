/* The credentials of one worker: loaded when they are first needed, and again before they expire, in a thread beside its
 * loop. */
#ifndef POSTRIDER_AWS_KEYRING_H
#define POSTRIDER_AWS_KEYRING_H

#include "aws/credentials.h"
#include "base/errand.h"

struct aws_keyring {
	const struct aws_sources *sources;
	struct aws_credentials current;         /* key_id NULL: none */

	bool loading;
	struct errand errand;
	struct aws_credentials loaded;          /* these three are the thread's until it is over */
	bool ok;
	struct error why;
	int64_t renew_at_ms;                    /* not earlier, after the last load */
};

void aws_keyring_init(struct aws_keyring *k, const struct aws_sources *sources);        /* which must outlive it */
void aws_keyring_release(struct aws_keyring *k);

/* Those that can be used now, or NULL: they are being loaded. Valid until the next
 * aws_keyring_pump. Begins to load what is missing or about to expire. `unix_seconds` is the time of day. */
const struct aws_credentials *aws_keyring_get(struct aws_keyring *k, int64_t now_ms, int64_t unix_seconds);
/* False, once, when an attempt has failed and there is nothing to go on with. */
bool aws_keyring_pump(struct aws_keyring *k, int64_t now_ms, int64_t unix_seconds, struct error *err);
/* Readable when a load is over; -1: none is under way. */
int aws_keyring_fd(const struct aws_keyring *k);
/* The other side does not accept them: the next ones are loaded anew, from wherever somebody may have changed them. */
void aws_keyring_doubt(struct aws_keyring *k);

#endif
