/* Allocation that never returns NULL: out of memory ends the process, and what was in flight is repeated. */
#ifndef POSTRIDER_BASE_MEM_H
#define POSTRIDER_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

void *mem_alloc(size_t size);                   /* zeroed */
void *mem_resize(void *old, size_t size);
/* A list of so many elements, with room for one more: larger than before if need be. */
void *mem_one_more(void *list, uint32_t n, uint32_t *room, size_t element_size);
char *mem_strdup(const char *s);                /* NULL stays NULL */
char *mem_strndup(const char *s, size_t len);
char *mem_printf(const char *fmt, ...) _printf_(1, 2);

#define mem_new(type) ((type *)mem_alloc(sizeof(type)))
#define mem_new_array(type, n) ((type *)mem_alloc_array(sizeof(type), (n)))
void *mem_alloc_array(size_t size, size_t n);

/* For what libraries allocate, when memory is the only reason that they have to say no. */
void mem_must(bool has_memory);

void mem_freep(void *pointer_to_pointer);       /* for _cleanup_(mem_freep) */

#endif
