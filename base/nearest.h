/* Which known name was meant. Thread: any. */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stddef.h>

/* Edits (insert, delete, replace of a byte) from a to b; names beyond 128 bytes count as far away. */
size_t edit_distance(const char *a, const char *b);

#endif
