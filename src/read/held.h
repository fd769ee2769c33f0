/* Entities that are held back, in statements of all readers: those with an entry in postrider.retry. Mostly there is none at
 * all, so a statement asks that once, and looks for each entity only when there is. */
#ifndef POSTRIDER_READ_HELD_H
#define POSTRIDER_READ_HELD_H

#define HELD_NONE "(SELECT count(*) = 0 FROM postrider.retry r WHERE r.outbox = {outbox})"

/* The entry `r` of an entity, which is text. */
#define HELD_ENTRY_OF(entity) "postrider.retry r WHERE r.outbox = {outbox} AND r.entity = " entity

/* A test that an entity has no entry that passes `more` (" AND …"). */
#define HELD_IS_FREE(entity, more)                                                                              \
	" CASE WHEN " HELD_NONE " THEN true ELSE NOT EXISTS (SELECT FROM " HELD_ENTRY_OF(entity) more ") END"

/* … whose time has not come. */
#define HELD_NOT_YET " AND r.retry_at > now()"

#endif
