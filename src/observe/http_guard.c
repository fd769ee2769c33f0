#include "observe/http_guard.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"
#include "config/secret.h"

/* An address in digits, or localhost, with a port or without. */
static bool names_no_name(struct slice host)
{
	_cleanup_(mem_freep) char *text = mem_strndup(host.ptr, host.len);
	struct in6_addr ignored;
	char *end;

	if (text[0] == '[') {
		end = strchr(text, ']');
		if (!end || (end[1] != '\0' && end[1] != ':'))
			return false;
		*end = '\0';
		return inet_pton(AF_INET6, text + 1, &ignored) == 1;
	}
	text[strcspn(text, ":")] = '\0';
	return strcasecmp(text, "localhost") == 0 || inet_pton(AF_INET, text, &ignored) == 1;
}

/* Takes as long for a token that is nearly right as for one that is not. */
static bool is_same_secret(struct slice given, const char *secret)
{
	size_t len = strlen(secret);
	unsigned char differs = given.len != len;

	for (size_t i = 0; i < given.len; i++)
		differs |= (unsigned char)(given.ptr[i] ^ secret[i % len]);
	return !differs;
}

static enum http_admission check_token(struct slice given, const char *token_file)
{
	struct error ignored;
	char *secret = NULL;
	bool same;

	if (!config_read_secret(token_file, &secret, &ignored))
		return HTTP_NO_TOKEN_FILE;
	same = given.ptr && is_same_secret(given, secret);
	explicit_bzero(secret, strlen(secret));
	free(secret);
	return same ? HTTP_ADMITTED : HTTP_WRONG_TOKEN;
}

enum http_admission http_guard(const struct http_request *r, const char *token_file, bool open)
{
	if (token_file[0] != '\0')
		return open ? HTTP_ADMITTED : check_token(r->token, token_file);
	return !r->host.ptr || names_no_name(r->host) ? HTTP_ADMITTED : HTTP_WRONG_HOST;
}
