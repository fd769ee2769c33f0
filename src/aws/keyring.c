#include "aws/keyring.h"

#include "base/macros.h"

/* Services give out new ones five minutes before the old ones end, at the latest. */
enum { REFRESH_AHEAD_S = 300, LAST_MOMENT_S = 10, RENEW_PAUSE_MS = 1000 };

void aws_keyring_init(struct aws_keyring *k, const struct aws_sources *sources)
{
	*k = (struct aws_keyring){ .sources = sources };
}

void aws_keyring_release(struct aws_keyring *k)
{
	if (k->loading) {
		errand_interrupt(&k->errand);
		errand_end(&k->errand);
	}
	aws_credentials_release(&k->current);
	aws_credentials_release(&k->loaded);
}

static bool lasts(const struct aws_keyring *k, int64_t unix_seconds, int64_t margin)
{
	return k->current.key_id && (k->current.expires_at == AWS_NEVER || unix_seconds + margin < k->current.expires_at);
}

static void load(void *keyring)
{
	struct aws_keyring *k = keyring;

	k->ok = aws_credentials_load(k->sources, k->errand.interrupt_fd, &k->loaded, &k->why);
}

static void begin(struct aws_keyring *k)
{
	k->ok = false;
	k->loading = true;
	errand_start(&k->errand, load, k, &k->why);
}

/* What is only to be renewed can wait for a while after a failure. How often somebody without any asks is up to him. */
static bool is_due(const struct aws_keyring *k, int64_t now_ms, int64_t unix_seconds)
{
	return !lasts(k, unix_seconds, LAST_MOMENT_S) ||
	       (!lasts(k, unix_seconds, REFRESH_AHEAD_S) && now_ms >= k->renew_at_ms);
}

const struct aws_credentials *aws_keyring_get(struct aws_keyring *k, int64_t now_ms, int64_t unix_seconds)
{
	if (!k->loading && is_due(k, now_ms, unix_seconds))
		begin(k);
	return lasts(k, unix_seconds, LAST_MOMENT_S) ? &k->current : NULL;
}

bool aws_keyring_pump(struct aws_keyring *k, int64_t now_ms, int64_t unix_seconds, struct error *err)
{
	if (!k->loading || !errand_is_over(&k->errand))
		return true;
	errand_end(&k->errand);
	k->loading = false;
	k->renew_at_ms = now_ms + RENEW_PAUSE_MS;
	if (k->ok) {
		aws_credentials_release(&k->current);
		k->current = k->loaded;
		k->loaded = (struct aws_credentials){ 0 };
		return true;
	}
	if (lasts(k, unix_seconds, LAST_MOMENT_S))
		return true;
	*err = k->why;
	return false;
}

int aws_keyring_fd(const struct aws_keyring *k)
{
	return k->loading ? k->errand.over_fd : -1;
}

void aws_keyring_doubt(struct aws_keyring *k)
{
	aws_credentials_release(&k->current);
}
