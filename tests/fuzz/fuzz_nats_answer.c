/* What JetStream says to a message, against a JSON library: whatever we take is an object for it, too, and the code of an
 * error is the same. Of what lies behind the object, and of names that come twice, each may think as it likes. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sink/nats_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compare(const struct nats_answer *ours, const json_t *theirs)
{
	const json_t *error = json_object_get(theirs, "error");
	const json_t *code = json_object_get(error, "err_code");

	if (ours->refused != (error != NULL))
		abort();
	if (json_is_integer(code) && llabs(json_integer_value(code)) < INT32_MAX && ours->code != json_integer_value(code))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct nats_answer answer;
	json_t *theirs;

	if (!nats_answer_read((struct slice){ (const char *)data, size }, &answer))
		return 0;
	if (strnlen(answer.description, sizeof(answer.description)) == sizeof(answer.description) ||
	    strnlen(answer.stream, sizeof(answer.stream)) == sizeof(answer.stream))
		abort();
	theirs = json_loadb((const char *)data, size, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, NULL);
	if (theirs)
		compare(&answer, theirs);
	json_decref(theirs);
	return 0;
}
