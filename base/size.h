/* Sizes in bytes formatted for people to read, and as a person would write them in an option. Thread: any. */
#ifndef BASE_SIZE_H
#define BASE_SIZE_H

#include <stdint.h>

struct size_text {
    char text[32];
};

/* "0 B", "24.00 MiB", "1.06 GiB": two decimals from KiB on. */
struct size_text size_shown(uint64_t n_bytes);

/* "24MiB", "12GiB": at least n_bytes and, where possible, at most `most`, in the coarsest unit that adds no
 * more than a tenth; exact bytes when no unit stays within `most`. Options accept this form. */
struct size_text size_option(uint64_t n_bytes, uint64_t most);

#endif
