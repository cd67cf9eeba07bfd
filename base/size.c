/* Sizes as text; see size.h. */
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>

struct size_text size_shown(uint64_t n_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct size_text out;
    double x = (double)n_bytes;
    int i = 0;
    for (; x >= 1023.995 && i < 6; i++) /* would be printed as 1024.00 */
        x /= 1024;
    snprintf(out.text, sizeof(out.text), "%.*f %s", i ? 2 : 0, x, units[i]);
    return out;
}

struct size_text size_option(uint64_t n_bytes, uint64_t most)
{
    static const char *const units[] = {"TiB", "GiB", "MiB", "KiB"};
    struct size_text out;
    for (int i = 0; i < 4; i++) {
        uint64_t unit = (uint64_t)1 << (40 - 10 * i);
        uint64_t n = n_bytes / unit + (n_bytes % unit != 0), more = n * unit - n_bytes;
        if (n == 0 || more > n_bytes / 10 || (more && n * unit > most))
            continue;
        snprintf(out.text, sizeof(out.text), "%" PRIu64 "%s", n, units[i]);
        return out;
    }
    snprintf(out.text, sizeof(out.text), "%" PRIu64, n_bytes);
    return out;
}
