/* server/framing on any bytes: splitting the input differently makes no difference, accepted output is accepted
 * again unchanged, and refused bytes never complete a request. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "server/http/framing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct result {
    struct framing f;
    char *out; /* [n] */
    size_t n;
};

/* Takes data in pieces of step bytes, as few as there are for step 0. */
static void take(struct result *r, const void *data, size_t size, size_t step)
{
    memset(r, 0, sizeof(*r));
    framing_init(&r->f);
    r->out = mem_alloc(size + 1);
    for (size_t at = 0; at < size;) {
        size_t n = step && step < size - at ? step : size - at;
        memcpy(r->out + r->n, (const char *)data + at, n);
        size_t kept = framing_take(&r->f, r->out + r->n, n);
        CHECK(kept <= n);
        r->n += kept;
        at += n;
    }
}

static bool same(const struct result *a, const struct result *b)
{
    return a->n == b->n && memcmp(a->out, b->out, a->n) == 0 && a->f.why == b->f.why &&
           a->f.problem == b->f.problem && a->f.n_heads == b->f.n_heads &&
           a->f.n_requests == b->f.n_requests && a->f.n_partial == b->f.n_partial;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct result whole, pieces, again;
    size_t step = size ? 1 + data[0] % 7u : 1;
    take(&whole, data, size, 0);
    take(&pieces, data, size, step);
    CHECK(same(&whole, &pieces));
    CHECK(whole.f.n_partial <= whole.n);
    CHECK(whole.f.n_requests <= whole.f.n_heads && whole.f.n_heads <= whole.f.n_requests + 1);
    CHECK((whole.f.why != NULL) == (whole.f.problem != 0));

    size_t n_good = whole.n - (whole.f.why ? (size_t)whole.f.n_partial : 0);
    take(&again, whole.out, n_good, 0);
    CHECK(!again.f.why && again.n == n_good && memcmp(again.out, whole.out, n_good) == 0);
    CHECK(again.f.n_requests == whole.f.n_requests);
    mem_free(whole.out);
    mem_free(pieces.out);
    mem_free(again.out);
    return 0;
}
