/* The secrets of one worker's webhooks: what requests are signed with, and what they say who we are.
 *
 * Both come from files, which are looked at once a second and read again when they have changed. A file of signing secrets
 * has one in each line, `whsec_` and base64; during a rotation it has two or more, and a request as many signatures. */
#ifndef POSTRIDER_SINK_WEBHOOK_KEYS_H
#define POSTRIDER_SINK_WEBHOOK_KEYS_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/error.h"
#include "config/config.h"

enum {
	WEBHOOK_KEYS_MAX = 8,
	WEBHOOK_KEY_MIN_BYTES = 24,     /* both as Standard Webhooks has them */
	WEBHOOK_KEY_MAX_BYTES = 64,
};

struct webhook_keys {
	const struct webhook_config *config;
	EVP_PKEY *keys[WEBHOOK_KEYS_MAX];
	uint32_t n_keys;
	char *authorization;            /* "Authorization: …", or NULL */
	struct stat secrets_seen, authorization_seen;
	int64_t look_at_ms;             /* at the files, again */
};

void webhook_keys_init(struct webhook_keys *k, const struct webhook_config *config);
void webhook_keys_release(struct webhook_keys *k);

/* Before they are used. ERROR_CONFIG names file and line; then there are none to use. */
bool webhook_keys_look(struct webhook_keys *k, int64_t now_ms, struct error *err);
/* Adds "v1,<signature>" for each secret, separated by blanks. */
void webhook_keys_sign(const struct webhook_keys *k, struct slice id, int64_t timestamp, struct slice body, struct buf *ret);

/* One secret as people write it; `ret` has room for WEBHOOK_KEY_MAX_BYTES. False: it is none. */
bool webhook_secret_read(struct slice text, unsigned char *ret, size_t *ret_len);

#endif
