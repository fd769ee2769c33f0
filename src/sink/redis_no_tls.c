#include "sink/redis_tls.h"

#include "base/macros.h"

bool redis_tls_new(const struct redis_config *config _unused_, const char *server_name _unused_,
		   struct redis_tls **ret _unused_, struct error *err)
{
	error_set(err, ERROR_CONFIG, "this build has no TLS to Redis: it was made with a hiredis that has none");
	return error_hint(err, "build with hiredis 1.0 or newer and its hiredis_ssl, or say `tls: off` if the network is safe");
}

void redis_tls_free(struct redis_tls *t _unused_)
{
}

bool redis_tls_start(const struct redis_tls *t _unused_, struct redis_link *l _unused_, struct error *err)
{
	return error_set(err, ERROR_BUG, "TLS was asked for, and nobody noticed that there is none");
}

void redis_tls_explain(const struct redis_tls *t _unused_, const struct redis_link *l _unused_, struct error *err _unused_)
{
}
