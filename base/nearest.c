/* Finds the known name closest to a misspelt one; see nearest.h. */
#include "base/nearest.h"

#include <stdint.h>
#include <string.h>

enum { MAX_NAME = 128 };

size_t edit_distance(const char *a, const char *b)
{
    size_t n_a = strlen(a), n_b = strlen(b);
    if (n_a > MAX_NAME || n_b > MAX_NAME)
        return SIZE_MAX / 2;
    size_t row[MAX_NAME + 1];
    for (size_t j = 0; j <= n_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t least = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < least)
                least = row[j] + 1;
            if (row[j - 1] + 1 < least)
                least = row[j - 1] + 1;
            row[j] = least;
        }
    }
    return row[n_b];
}

size_t edit_distance_of_slips(const char *given)
{
    size_t n = (strlen(given) + 2) / 3;
    return n < 3 ? n : 3;
}
