/* The setting shards.own: numbers and ranges, "0-3,8". */
#ifndef POSTRIDER_CONFIG_SHARD_LIST_H
#define POSTRIDER_CONFIG_SHARD_LIST_H

#include <stdbool.h>
#include <stdint.h>

/* False when it is not such a list, or a number is not below `count`. Sets ret[shard] for those in the list, and leaves the
 * others; ret may be NULL. */
bool shard_list_parse(const char *text, uint32_t count, bool *ret);

#endif
