/* A secret as people write it: what is taken has a length that is allowed, and is the same when OpenSSL reads it. */
#include <openssl/evp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sink/webhook_keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned char ours[WEBHOOK_KEY_MAX_BYTES], theirs[2 * WEBHOOK_KEY_MAX_BYTES];
	size_t len;

	if (!webhook_secret_read((struct slice){ (const char *)data, size }, ours, &len))
		return 0;
	if (len < WEBHOOK_KEY_MIN_BYTES || len > WEBHOOK_KEY_MAX_BYTES || memcmp(data, "whsec_", 6) != 0)
		abort();
	if (EVP_DecodeBlock(theirs, data + 6, (int)size - 6) < (int)len || memcmp(ours, theirs, len) != 0)
		abort();
	return 0;
}
