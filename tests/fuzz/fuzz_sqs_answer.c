/* What SQS says to a batch, and to a request that it refuses, against a JSON library: whatever we take is an object for it, too,
 * and an entry that we call stored is listed as such there. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sink/sqs_answer.h"
#include "sink/sqs_errors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool lists(const json_t *answer, const char *list, int number)
{
	const json_t *entries = json_object_get(answer, list), *entry;
	char id[2] = { (char)('0' + number), '\0' };
	size_t i;

	json_array_foreach(entries, i, entry) {
		const char *text = json_string_value(json_object_get(entry, "Id"));

		if (text && strcmp(text, id) == 0)
			return true;
	}
	return false;
}

static void compare(const struct sqs_answer *ours, const json_t *theirs)
{
	for (int i = 0; i < SQS_BATCH_MAX; i++) {
		if (ours->fate[i] == SQS_STORED && (!lists(theirs, "Successful", i) || lists(theirs, "Failed", i)))
			abort();
		if (ours->fate[i] == SQS_REFUSED && (!lists(theirs, "Failed", i) || lists(theirs, "Successful", i)))
			abort();
	}
}

static void expect_text(const char *text, size_t room)
{
	if (strnlen(text, room) == room)
		abort();
}

static void refuse(struct slice body)
{
	struct aws_refusal refusal;
	struct error err;

	aws_refusal_read(body, &refusal);
	expect_text(refusal.code, sizeof(refusal.code));
	expect_text(refusal.message, sizeof(refusal.message));
	sqs_error_set(&err, 400, &refusal, SLICE_LITERAL("queue"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice body = { (const char *)data, size };
	struct sqs_answer answer;
	json_t *theirs;

	refuse(body);
	if (!sqs_answer_read(body, &answer))
		return 0;
	for (int i = 0; i < SQS_BATCH_MAX; i++)
		expect_text(answer.why[i].code, sizeof(answer.why[i].code));
	theirs = json_loadb((const char *)data, size, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, NULL);
	if (theirs)
		compare(&answer, theirs);
	json_decref(theirs);
	return 0;
}
