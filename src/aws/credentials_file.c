/* The file that AWS's command line writes: sections in brackets, `name = value` lines. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aws/credentials.h"
#include "base/mem.h"

enum { LINE_MAX_BYTES = 8192 };

static const char *profile_of(const struct aws_sources *s)
{
	const char *variable = aws_variable("AWS_PROFILE");

	return s->profile[0] ? s->profile : variable ? variable : "default";
}

/* NULL: there is no place for it. */
static char *path_of_file(void)
{
	const char *path = aws_variable("AWS_SHARED_CREDENTIALS_FILE"), *home = aws_variable("HOME");

	if (path)
		return mem_strdup(path);
	return home ? mem_printf("%s/.aws/credentials", home) : NULL;
}

static char *trimmed(char *text)
{
	char *end;

	text += strspn(text, " \t");
	end = text + strlen(text);
	while (end > text && strchr(" \t\r\n", end[-1]))
		*--end = '\0';
	return text;
}

static bool is_section(const char *line, const char *profile)
{
	size_t len = strlen(profile);

	return line[0] == '[' && strncmp(line + 1, profile, len) == 0 && strcmp(line + 1 + len, "]") == 0;
}

static void take_line(char *line, struct aws_credentials *c)
{
	struct {
		const char *name;
		char **place;
	} wanted[] = {
		{ "aws_access_key_id", &c->key_id },
		{ "aws_secret_access_key", &c->secret },
		{ "aws_session_token", &c->token },
	};
	char *value = strchr(line, '=');

	if (!value)
		return;
	*value++ = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		if (strcmp(trimmed(line), wanted[i].name) != 0)
			continue;
		free(*wanted[i].place);
		*wanted[i].place = mem_strdup(trimmed(value));
	}
}

/* True when the section is there, whatever it has. */
static bool read_section(FILE *file, const char *profile, struct aws_credentials *ret)
{
	bool inside = false, found = false;
	char bytes[LINE_MAX_BYTES];

	while (fgets(bytes, sizeof(bytes), file)) {
		char *line = trimmed(bytes);

		if (line[0] == '[')
			found |= inside = is_section(line, profile);
		else if (inside && line[0] != '#' && line[0] != ';')
			take_line(line, ret);
	}
	explicit_bzero(bytes, sizeof(bytes));
	return found;
}

/* Where nobody has named a profile or a file, the file may have nothing for us. */
static bool is_meant(const struct aws_sources *s)
{
	_cleanup_(aws_credentials_release) struct aws_credentials c = { 0 };
	_cleanup_(mem_freep) char *path = path_of_file();
	FILE *file;
	bool found;

	if (s->profile[0] || aws_variable("AWS_PROFILE") || aws_variable("AWS_SHARED_CREDENTIALS_FILE"))
		return true;
	file = path ? fopen(path, "re") : NULL;
	if (!file)
		return false;
	found = read_section(file, profile_of(s), &c) && c.key_id;
	fclose(file);
	return found;
}

static bool load(const struct aws_sources *s, _unused_ int interrupt_fd, struct aws_credentials *ret, struct error *err)
{
	_cleanup_(aws_credentials_release) struct aws_credentials c = { .expires_at = AWS_NEVER };
	_cleanup_(mem_freep) char *path = path_of_file();
	FILE *file = path ? fopen(path, "re") : NULL;
	bool found;

	if (!file)
		return error_set(err, ERROR_CONFIG, "could not read %s: %s", path ? path : "~/.aws/credentials",
				 strerror(path ? errno : ENOENT));
	found = read_section(file, profile_of(s), &c);
	fclose(file);
	if (!found)
		return error_set(err, ERROR_CONFIG, "%s has no profile [%s]", path, profile_of(s));
	if (!c.key_id || !c.secret) {
		error_set(err, ERROR_CONFIG, "profile [%s] in %s has no key", profile_of(s), path);
		return error_hint(err, "it needs aws_access_key_id and aws_secret_access_key");
	}
	*ret = c;
	c = (struct aws_credentials){ 0 };
	return true;
}

const struct aws_source aws_shared_file = { "shared file", is_meant, load };
