#include "sink/nats_subject.h"

/* The server's limit for a line of its protocol is 4096 bytes, and the line names the inbox and sizes too. */
enum { SUBJECT_MAX_LEN = 3500 };

static bool is_blank(unsigned char c)
{
	return c <= ' ' || c == 0x7f;
}

static bool has_prefix(struct slice s, const char *prefix)
{
	size_t len = strlen(prefix);

	return s.len >= len && memcmp(s.ptr, prefix, len) == 0;
}

const char *nats_subject_fault(struct slice subject)
{
	if (subject.len == 0)
		return "is empty, and NATS allows no empty subject";
	if (subject.len > SUBJECT_MAX_LEN)
		return "is longer than 3500 bytes, which a server of NATS does not read";
	if (has_prefix(subject, "$JS.") || has_prefix(subject, "$SYS.") || has_prefix(subject, "_INBOX."))
		return "belongs to NATS itself: no stream can keep it";
	for (size_t i = 0; i < subject.len; i++) {
		if (is_blank((unsigned char)subject.ptr[i]))
			return "has a blank or a control character, which NATS does not allow";
		if (subject.ptr[i] == '*' || subject.ptr[i] == '>')
			return "has a wildcard (* or >), and NATS allows these in subscriptions only";
		if (subject.ptr[i] == '.' && (i == 0 || i + 1 == subject.len || subject.ptr[i - 1] == '.'))
			return "has an empty part between its dots, which NATS does not allow";
	}
	return NULL;
}
