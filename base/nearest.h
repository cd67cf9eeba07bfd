/* Which known name was meant. Thread: any. */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stddef.h>

/* Edits (insert, delete, replace of a byte) from a to b; names beyond 128 bytes count as far away. */
size_t edit_distance(const char *a, const char *b);
/* Most edits of `given` that are still a slip of the fingers: a third of it, at most 3. */
size_t edit_distance_of_slips(const char *given);

#endif
