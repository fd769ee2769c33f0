#include "aws/credentials.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "config/secret.h"

const char *aws_variable(const char *name)
{
	const char *value = getenv(name);

	return value && value[0] ? value : NULL;
}

int64_t aws_expiration(const char *text)
{
	struct tm utc = { 0 };
	const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);

	return end ? (int64_t)timegm(&utc) : AWS_NEVER;
}

/* --- our settings --------------------------------------------------------------------------------------------- */

static bool settings_are_meant(const struct aws_sources *s)
{
	return s->key_id[0];
}

static bool load_settings(const struct aws_sources *s, _unused_ int interrupt_fd, struct aws_credentials *ret,
			  struct error *err)
{
	char *secret;

	if (!config_read_secret(s->secret_file, &secret, err))
		return false;
	*ret = (struct aws_credentials){ mem_strdup(s->key_id), secret, NULL, AWS_NEVER };
	return true;
}

/* --- the environment ------------------------------------------------------------------------------------------ */

static bool environment_is_meant(_unused_ const struct aws_sources *s)
{
	return aws_variable("AWS_ACCESS_KEY_ID");
}

static bool load_environment(_unused_ const struct aws_sources *s, _unused_ int interrupt_fd, struct aws_credentials *ret,
			     struct error *err)
{
	const char *secret = aws_variable("AWS_SECRET_ACCESS_KEY");

	if (!secret)
		return error_set(err, ERROR_CONFIG, "AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not");
	*ret = (struct aws_credentials){ mem_strdup(aws_variable("AWS_ACCESS_KEY_ID")), mem_strdup(secret),
					 mem_strdup(aws_variable("AWS_SESSION_TOKEN")), AWS_NEVER };
	return true;
}

/* --- all of them ---------------------------------------------------------------------------------------------- */

static const struct aws_source settings = { "settings", settings_are_meant, load_settings };
static const struct aws_source environment = { "environment", environment_is_meant, load_environment };

static const struct aws_source *const sources[] = {
	&settings, &environment, &aws_web_identity, &aws_shared_file, &aws_container, &aws_instance,
};

bool aws_credentials_load(const struct aws_sources *s, int interrupt_fd, struct aws_credentials *ret, struct error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		if (!sources[i]->is_meant(s))
			continue;
		return sources[i]->load(s, interrupt_fd, ret, err) ||
		       error_prefix(err, "credentials of AWS from the %s", sources[i]->name);
	}
	error_set(err, ERROR_AUTH, "there are no credentials of AWS");
	return error_hint(err, "set access_key_id and secret_access_key_file, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
			       "or name a profile");
}

static void forget(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
}

void aws_credentials_release(struct aws_credentials *c)
{
	free(c->key_id);
	forget(c->secret);
	forget(c->token);
	*c = (struct aws_credentials){ 0 };
}
