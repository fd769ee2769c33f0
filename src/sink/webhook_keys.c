#include "sink/webhook_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/mem.h"
#include "config/secret.h"
#include "sink/json_text.h"

enum { LOOK_EVERY_MS = 1000, SIGNATURE_BYTES = 32 };

#define PREFIX "whsec_"

/* --- reading ---------------------------------------------------------------------------------------------------- */

bool webhook_secret_read(struct slice text, unsigned char *ret, size_t *ret_len)
{
	const size_t prefix = sizeof(PREFIX) - 1, text_max = prefix + (WEBHOOK_KEY_MAX_BYTES + 2) / 3 * 4;
	char bytes[BASE64_ROOM((WEBHOOK_KEY_MAX_BYTES + 2) / 3 * 4)];
	size_t len;
	bool ok;

	if (text.len < prefix || text.len > text_max || memcmp(text.ptr, PREFIX, prefix) != 0 ||
	    memchr(text.ptr, '\n', text.len))
		return false;
	ok = base64_read((struct slice){ text.ptr + prefix, text.len - prefix }, bytes, &len) &&
	     len >= WEBHOOK_KEY_MIN_BYTES && len <= WEBHOOK_KEY_MAX_BYTES;
	if (ok) {
		memcpy(ret, bytes, len);
		*ret_len = len;
	}
	explicit_bzero(bytes, sizeof(bytes));
	return ok;
}

static void drop_keys(struct webhook_keys *k)
{
	while (k->n_keys > 0)
		EVP_PKEY_free(k->keys[--k->n_keys]);
}

static bool add_key(struct webhook_keys *k, struct slice text)
{
	unsigned char bytes[WEBHOOK_KEY_MAX_BYTES];
	size_t len;

	if (k->n_keys == WEBHOOK_KEYS_MAX || !webhook_secret_read(text, bytes, &len))
		return false;
	k->keys[k->n_keys] = EVP_PKEY_new_raw_private_key(EVP_PKEY_HMAC, NULL, bytes, len);
	mem_must(k->keys[k->n_keys] != NULL);
	k->n_keys++;
	explicit_bzero(bytes, sizeof(bytes));
	return true;
}

static struct slice trimmed(const char *line, size_t len)
{
	while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == ' '))
		len--;
	return (struct slice){ line, len };
}

/* Empty lines are passed over. */
static bool read_lines(struct webhook_keys *k, const char *text, struct error *err)
{
	for (unsigned number = 1; *text; number++) {
		size_t len = strcspn(text, "\n");
		struct slice line = trimmed(text, len);

		if (line.len > 0 && !add_key(k, line)) {
			error_set(err, ERROR_CONFIG, "line %u of %s is no secret of a webhook, or one too many", number,
				  k->config->secret_file);
			return error_hint(err, "write whsec_ and %d to %d bytes in base64, one in a line, %d at most; a new one: "
					       "echo whsec_$(openssl rand -base64 32)",
					  WEBHOOK_KEY_MIN_BYTES, WEBHOOK_KEY_MAX_BYTES, WEBHOOK_KEYS_MAX);
		}
		text += len + (text[len] == '\n');
	}
	return k->n_keys > 0 || error_set(err, ERROR_CONFIG, "%s has no secret", k->config->secret_file);
}

static void forget(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
}

static bool read_keys(struct webhook_keys *k, struct error *err)
{
	char *text = NULL;
	bool ok;

	drop_keys(k);
	ok = config_read_secret(k->config->secret_file, &text, err) && read_lines(k, text, err);
	forget(text);
	return ok;
}

static bool is_header_value(const char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			return false;
	return true;
}

static bool read_authorization(struct webhook_keys *k, struct error *err)
{
	char *text = NULL;
	bool ok;

	forget(TAKE_PTR(k->authorization));
	if (!config_read_secret(k->config->authorization_file, &text, err))
		return false;
	ok = is_header_value(text);
	if (ok)
		k->authorization = mem_printf("Authorization: %s", text);
	else
		error_set(err, ERROR_CONFIG, "%s must be one line of printable ASCII", k->config->authorization_file);
	forget(text);
	return ok;
}

/* False also for what is not there: reading it says so. */
static bool is_as_seen(const char *path, const struct stat *seen, struct stat *ret)
{
	*ret = (struct stat){ 0 };
	return stat(path, ret) == 0 && ret->st_ino == seen->st_ino && ret->st_size == seen->st_size &&
	       ret->st_mtim.tv_sec == seen->st_mtim.tv_sec && ret->st_mtim.tv_nsec == seen->st_mtim.tv_nsec;
}

/* What could not be read is not taken for seen, so that it is read again. */
static bool look(struct webhook_keys *k, const char *path, struct stat *seen,
		 bool (*read)(struct webhook_keys *k, struct error *err), struct error *err)
{
	struct stat now;

	if (!path[0] || is_as_seen(path, seen, &now))
		return true;
	*seen = (struct stat){ 0 };
	if (!read(k, err))
		return false;
	*seen = now;
	return true;
}

bool webhook_keys_look(struct webhook_keys *k, int64_t now_ms, struct error *err)
{
	if (now_ms < k->look_at_ms)
		return true;
	k->look_at_ms = 0;
	if (!look(k, k->config->secret_file, &k->secrets_seen, read_keys, err) ||
	    !look(k, k->config->authorization_file, &k->authorization_seen, read_authorization, err))
		return false;
	k->look_at_ms = now_ms + LOOK_EVERY_MS;
	return true;
}

void webhook_keys_init(struct webhook_keys *k, const struct webhook_config *config)
{
	*k = (struct webhook_keys){ .config = config };
}

void webhook_keys_release(struct webhook_keys *k)
{
	drop_keys(k);
	forget(TAKE_PTR(k->authorization));
}

/* --- signing ---------------------------------------------------------------------------------------------------- */

static bool update(EVP_MD_CTX *mac, struct slice bytes)
{
	return bytes.len == 0 || EVP_DigestSignUpdate(mac, bytes.ptr, bytes.len) == 1;
}

/* HMAC-SHA256 over id, time and body, with full stops between them. */
static void sign(EVP_PKEY *key, struct slice head, struct slice body, unsigned char ret[SIGNATURE_BYTES])
{
	size_t len = SIGNATURE_BYTES;
	EVP_MD_CTX *mac = EVP_MD_CTX_new();

	mem_must(mac && EVP_DigestSignInit(mac, NULL, EVP_sha256(), NULL, key) == 1 && update(mac, head) && update(mac, body) &&
		 EVP_DigestSignFinal(mac, ret, &len) == 1);
	EVP_MD_CTX_free(mac);
}

void webhook_keys_sign(const struct webhook_keys *k, struct slice id, int64_t timestamp, struct slice body, struct buf *ret)
{
	_cleanup_(buf_release) struct buf head = { .ceiling = id.len + 64 };
	unsigned char bytes[SIGNATURE_BYTES];

	buf_add_slice(&head, id);
	buf_printf(&head, ".%" PRId64 ".", timestamp);
	for (uint32_t i = 0; i < k->n_keys; i++) {
		sign(k->keys[i], (struct slice){ head.data, head.len }, body, bytes);
		buf_add_str(ret, i ? " v1," : "v1,");
		buf_add_base64(ret, (struct slice){ (const char *)bytes, SIGNATURE_BYTES });
	}
}
