/* Texts out of JSON that a service of AWS has sent: the members of an object that somebody wants, and no others. */
#ifndef POSTRIDER_AWS_MEMBERS_H
#define POSTRIDER_AWS_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "relay/json_scan.h"

/* A member that is a string. What is longer than the room is cut; what is not there, or no string, leaves "". */
struct aws_member {
	const char *name;
	char *ret;
	size_t room;
};

#define AWS_MEMBER(name, array) { (name), (array), sizeof(array) }

/* False when this is no JSON object. */
bool aws_members_read(struct slice json, const struct aws_member members[], uint32_t n);
/* The same for an object inside of something larger. */
bool aws_members_scan(struct json_scan *j, struct arena *arena, const struct aws_member members[], uint32_t n);

#endif
