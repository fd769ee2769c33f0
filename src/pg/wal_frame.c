#include "pg/wal_frame.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the fields are, all in network order. Of the server's clock we make nothing. */
enum { DATA_START = 1, DATA_END = 9, DATA_CLOCK = 17, DATA_BYTES = 25 };
enum { KEEPALIVE_END = 1, KEEPALIVE_CLOCK = 9, KEEPALIVE_REPLY = 17, KEEPALIVE_SIZE };
enum { STATUS_WRITTEN = 1, STATUS_FLUSHED = 9, STATUS_APPLIED = 17, STATUS_CLOCK = 25, STATUS_REPLY = 33 };

static uint64_t get_u64(const char *from)
{
	uint64_t value;

	memcpy(&value, from, sizeof(value));
	return be64toh(value);
}

static void set_u64(char *to, uint64_t value)
{
	value = htobe64(value);
	memcpy(to, &value, sizeof(value));
}

static bool decode_data(struct slice bytes, struct wal_frame *ret, struct error *err)
{
	if (bytes.len < DATA_BYTES)
		return error_set(err, ERROR_BUG, "could not decode data from the server: %zu bytes, %d are needed",
				 bytes.len, DATA_BYTES);
	*ret = (struct wal_frame){
		.kind = WAL_DATA,
		.start_lsn = get_u64(bytes.ptr + DATA_START),
		.end_lsn = get_u64(bytes.ptr + DATA_END),
		.data = { bytes.ptr + DATA_BYTES, bytes.len - DATA_BYTES },
	};
	return true;
}

static bool decode_keepalive(struct slice bytes, struct wal_frame *ret, struct error *err)
{
	if (bytes.len != KEEPALIVE_SIZE)
		return error_set(err, ERROR_BUG, "could not decode a keepalive: %zu bytes, %d are needed",
				 bytes.len, KEEPALIVE_SIZE);
	*ret = (struct wal_frame){
		.kind = WAL_KEEPALIVE,
		.end_lsn = get_u64(bytes.ptr + KEEPALIVE_END),
		.reply_wanted = bytes.ptr[KEEPALIVE_REPLY],
	};
	return true;
}

bool wal_frame_decode(struct slice bytes, struct wal_frame *ret, struct error *err)
{
	if (!bytes.len)
		return error_set(err, ERROR_BUG, "could not decode what the server sent: it is empty");
	switch (bytes.ptr[0]) {
	case 'w':
		return decode_data(bytes, ret, err);
	case 'k':
		return decode_keepalive(bytes, ret, err);
	default:
		return error_set(err, ERROR_BUG, "could not decode what the server sent: unknown kind 0x%02x",
				 (unsigned char)bytes.ptr[0]);
	}
}

void wal_status_encode(char out[WAL_STATUS_SIZE], uint64_t confirmed, int64_t now_us)
{
	out[0] = 'r';
	set_u64(out + STATUS_WRITTEN, confirmed);
	set_u64(out + STATUS_FLUSHED, confirmed);
	set_u64(out + STATUS_APPLIED, confirmed);
	set_u64(out + STATUS_CLOCK, (uint64_t)now_us);
	out[STATUS_REPLY] = 0;          /* the server need not answer */
}

void wal_lsn_write(char *out, uint64_t lsn)
{
	snprintf(out, WAL_LSN_TEXT, "%" PRIX32 "/%" PRIX32, (uint32_t)(lsn >> 32), (uint32_t)lsn);
}

/* One to eight digits and then `end`. strtoul alone would take blanks, signs and 0x as well. */
static bool parse_half(const char **text, char end, uint32_t *ret)
{
	size_t digits = strspn(*text, "0123456789abcdefABCDEF");

	if (digits < 1 || digits > 8 || (*text)[digits] != end)
		return false;
	*ret = (uint32_t)strtoul(*text, NULL, 16);
	*text += digits + 1;
	return true;
}

bool wal_lsn_parse(const char *text, uint64_t *ret)
{
	uint32_t high, low;

	if (!parse_half(&text, '/', &high) || !parse_half(&text, '\0', &low))
		return false;
	*ret = (uint64_t)high << 32 | low;
	return true;
}
