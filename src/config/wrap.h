/* Sentences in lines of bounded length, each behind the same prefix. */
#ifndef POSTRIDER_CONFIG_WRAP_H
#define POSTRIDER_CONFIG_WRAP_H

#include <stdio.h>

void wrap_text(FILE *out, const char *prefix, size_t columns, const char *text);

#endif
