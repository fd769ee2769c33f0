/* Who we are to AWS: a key and its secret, and where these come from.
 *
 * The first source that is meant counts, in the order of AWS's own clients: our settings, the environment, a role by a token
 * of Kubernetes, the shared file, the container, the instance. Loading blocks, so it is done in a thread (keyring.h) or by a
 * command. */
#ifndef POSTRIDER_AWS_CREDENTIALS_H
#define POSTRIDER_AWS_CREDENTIALS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

#define AWS_NEVER INT64_MAX

struct aws_credentials {
	char *key_id, *secret;          /* NULL: none */
	char *token;                    /* of temporary ones; NULL: none */
	int64_t expires_at;             /* seconds since 1970, or AWS_NEVER */
};

/* Settings of ours that say where to look. Strings are "" where nothing is set, and must outlive their use. */
struct aws_sources {
	const char *key_id, *secret_file;
	const char *profile;
	const char *region;             /* never "" */
};

/* One kind of source. */
struct aws_source {
	const char *name;
	/* Whether somebody means it to be used. Those behind it are not asked then, whatever comes of it. */
	bool (*is_meant)(const struct aws_sources *s);
	bool (*load)(const struct aws_sources *s, int interrupt_fd, struct aws_credentials *ret, struct error *err);
};

extern const struct aws_source aws_shared_file, aws_web_identity, aws_container, aws_instance;

/* `interrupt_fd` ends it early when it becomes readable; -1: nothing does. Failure is ERROR_AUTH or ERROR_CONFIG, or
 * ERROR_TRANSPORT where whoever gives them out is away; no message has a secret. The caller releases *ret. */
bool aws_credentials_load(const struct aws_sources *s, int interrupt_fd, struct aws_credentials *ret, struct error *err);
void aws_credentials_release(struct aws_credentials *c);        /* leaves it empty; also for _cleanup_ */

/* The value of a variable that is set and not empty, or NULL. */
const char *aws_variable(const char *name);
/* "2026-11-16T03:00:00Z" as seconds since 1970; AWS_NEVER for anything else. */
int64_t aws_expiration(const char *text);

#endif
