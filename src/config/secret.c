#include "config/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/mem.h"

static bool read_all(int fd, char *bytes, size_t room, size_t *ret_len)
{
	size_t len = 0;

	while (len < room) {
		ssize_t n = read(fd, bytes + len, room - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	*ret_len = len;
	return true;
}

static size_t without_newline(const char *bytes, size_t len)
{
	if (len > 0 && bytes[len - 1] == '\n')
		len--;
	if (len > 0 && bytes[len - 1] == '\r')
		len--;
	return len;
}

static bool take_secret(const char *path, char *bytes, int fd, char **ret, struct error *err)
{
	size_t len;

	if (!read_all(fd, bytes, SECRET_MAX_BYTES + 1, &len))
		return error_set(err, ERROR_CONFIG, "could not read the secret file %s: %s", path, strerror(errno));
	if (len > SECRET_MAX_BYTES)
		return error_set(err, ERROR_CONFIG, "the secret file %s is larger than 64 KiB", path);
	len = without_newline(bytes, len);
	if (len == 0)
		return error_set(err, ERROR_CONFIG, "the secret file %s is empty", path);
	if (memchr(bytes, '\0', len))
		return error_set(err, ERROR_CONFIG, "the secret file %s contains a NUL character", path);
	*ret = mem_strndup(bytes, len);
	return true;
}

bool config_read_secret(const char *path, char **ret, struct error *err)
{
	char *bytes;
	bool ok;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return error_set(err, ERROR_CONFIG, "could not open the secret file %s: %s", path, strerror(errno));
	bytes = mem_alloc(SECRET_MAX_BYTES + 1);
	ok = take_secret(path, bytes, fd, ret, err);
	explicit_bzero(bytes, SECRET_MAX_BYTES + 1); /* the heap is reused, and core files are read */
	free(bytes);
	close(fd);
	return ok;
}

bool config_is_secret_name(const char *name)
{
	static const char *const endings[] = { "password", "secret", "key.pem", "oauthbearer.config" };
	size_t len = strlen(name);

	for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
		size_t n = strlen(endings[i]);

		if (len >= n && strcasecmp(name + len - n, endings[i]) == 0)
			return true;
	}
	return false;
}
