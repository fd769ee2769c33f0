/* From the text that PostgreSQL prints to what readers of the table get. The log has what a type's output function
 * says. A query of ours gives some types in another form: because there is a cast of their own to text, or because the
 * query asks for their binary form. */
#ifndef POSTRIDER_READ_WAL_TEXT_H
#define POSTRIDER_READ_WAL_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"
#include "pg/table.h"

#define WAL_TEXT_SMALL 64               /* bytes, enough for a time or an address in a network */

/* What makes of a value as the log has it the value that a query would give. */
enum wal_conversion {
	WAL_AS_IS,
	WAL_BOOLEAN,                    /* "t" is "true" */
	WAL_BLANKS,                     /* of char(n), at the end: none */
	WAL_NETMASK,                    /* "10.0.0.1" is "10.0.0.1/32" */
	WAL_TIME,                       /* RFC 3339 */
	WAL_BYTES,                      /* "\x6869" is "hi" */
};

/* For a column of this type, which is read as that field. The log names a domain by its own oid: `behind` is the type
 * behind it, as format_type() has it. It may be NULL. */
enum wal_conversion wal_text_conversion(uint32_t type, const char *behind, enum field field);

/* `text` is not NULL. What comes back points into it, into `small`, or to a constant. WAL_BYTES leaves it as it is. */
struct slice wal_text_convert(enum wal_conversion conversion, struct slice text, char small[WAL_TEXT_SMALL]);
/* That is WAL_BYTES: it needs room, and it can fail. *to has the bytes after it, and nothing else. ERROR_BUG when they
 * are not in the hexadecimal form, or more than the ceiling of *to. */
bool wal_text_bytes(struct slice text, struct buf *to, struct error *err);

#endif
