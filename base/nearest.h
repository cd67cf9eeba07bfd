/* Spelling suggestions: the known name closest to a misspelt one. Thread: any. */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stddef.h>

/* The edit distance (insert, delete or replace one byte) from a to b; names over 128 bytes count as far apart. */
size_t edit_distance(const char *a, const char *b);
/* The largest edit distance from `given` that still counts as a typo: a third of its length, at most 3. */
size_t edit_distance_of_slips(const char *given);

#endif
