/* Made-up histories in one line each. To be included after cmocka.h.
 *
 * Rows: "a1 a2 b1=b2 c1? d1/other": the letter is the entity ("-": none), the number the order, the whole the id; =ID
 * gives another id, ? is not published yet, /TOPIC goes to another topic than "orders". "!id" cannot be a message.
 * Records: "a1 a2@3 x - a1/other": @ names the partition, 0 unless set; - has no id. Offsets count up. */
#ifndef POSTRIDER_TESTS_VERIFY_FIXTURE_H
#define POSTRIDER_TESTS_VERIFY_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify/compare.h"
#include "verify/ledger.h"

struct history {
	struct ledger ledger;
	struct comparison comparison;
	char line[2048];
};

/* The part of the word behind the mark, which is cut off; NULL without the mark. */
static char *cut(char *word, char mark)
{
	char *at = strchr(word, mark);

	if (at)
		*at++ = '\0';
	return at;
}

static void add_row(struct ledger *l, char *word)
{
	char *topic = cut(word, '/');
	bool pending = cut(word, '?') != NULL;
	char *id = cut(word, '=');

	if (word[0] == '!') {
		assert_true(ledger_add_unroutable(l, slice_of(word + 1)));
		return;
	}
	assert_true(ledger_add(l, &(struct ledger_entry){
		.id = slice_of(id ? id : word),
		.entity = word[0] == '-' ? SLICE_NULL : (struct slice){ word, 1 },
		.topic = slice_of(topic ? topic : "orders"),
		.rank = (uint32_t)atoi(word + 1),
		.pending = pending,
	}));
}

static void add_record(struct history *h, char *word, int64_t offset)
{
	bool is_new;
	char *partition = cut(word, '@'), *topic = cut(word, '/');

	compare_take(&h->comparison, &(struct verify_record){
		.id = strcmp(word, "-") == 0 ? SLICE_NULL : slice_of(word),
		.topic = words_add(&h->ledger.topics, slice_of(topic ? topic : "orders"), &is_new),
		.partition = partition ? atoi(partition) : 0,
		.offset = offset,
	});
}

static void history_init(struct history *h, const char *rows, const char *records, uint32_t show)
{
	char *words = strdup(rows), *rest = words, *word;
	int64_t offset = 0;

	ledger_init(&h->ledger);
	while ((word = strsep(&rest, " ")))
		if (*word)
			add_row(&h->ledger, word);
	free(words);
	compare_init(&h->comparison, &h->ledger, show);
	words = rest = strdup(records);
	while ((word = strsep(&rest, " ")))
		if (*word)
			add_record(h, word, offset++);
	free(words);
	compare_finish(&h->comparison);
}

static void history_release(struct history *h)
{
	compare_release(&h->comparison);
	ledger_release(&h->ledger);
}

#endif
