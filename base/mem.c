/* Counted allocation; see mem.h. */
#include "base/mem.h"
#include "base/base_test.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static _Thread_local uint64_t n_allocs, n_alloc_bytes;
static _Thread_local uint64_t fail_in;

static void *must(void *p, size_t n_bytes)
{
    CHECKF(p, "out of memory: %zu bytes", n_bytes);
    return p;
}

static void count(size_t n_bytes)
{
    n_allocs++;
    n_alloc_bytes += n_bytes;
}

static bool fails_now(size_t n_bytes)
{
    count(n_bytes);
    return fail_in && --fail_in == 0;
}

void *mem_alloc(size_t n_bytes)
{
    count(n_bytes);
    return must(malloc(n_bytes ? n_bytes : 1), n_bytes);
}

void *mem_zalloc(size_t n_bytes)
{
    count(n_bytes);
    return must(calloc(1, n_bytes ? n_bytes : 1), n_bytes);
}

void *mem_realloc(void *p, size_t n_bytes)
{
    count(n_bytes);
    return must(realloc(p, n_bytes ? n_bytes : 1), n_bytes);
}

void *mem_try_alloc(size_t n_bytes)
{
    return fails_now(n_bytes) ? NULL : malloc(n_bytes ? n_bytes : 1);
}

void *mem_try_zalloc(size_t n_bytes)
{
    return fails_now(n_bytes) ? NULL : calloc(1, n_bytes ? n_bytes : 1);
}

void *mem_try_realloc(void *p, size_t n_bytes)
{
    return fails_now(n_bytes) ? NULL : realloc(p, n_bytes ? n_bytes : 1);
}

void *mem_aligned(size_t alignment, size_t n_bytes)
{
    size_t rounded;
    if (fails_now(n_bytes) || !mem_add_ok(n_bytes ? n_bytes : 1, alignment - 1, &rounded))
        return NULL;
    return aligned_alloc(alignment, rounded & ~(alignment - 1));
}

void mem_free(void *p)
{
    free(p);
}

void *mem_dup(const void *p, size_t n_bytes)
{
    char *copy = mem_alloc(n_bytes + 1);
    if (n_bytes)
        memcpy(copy, p, n_bytes);
    copy[n_bytes] = 0;
    return copy;
}

char *mem_strdup(const char *s)
{
    return mem_dup(s, strlen(s));
}

size_t mem_mul(size_t n, size_t size)
{
    size_t product;
    CHECKF(mem_mul_ok(n, size, &product), "size overflow: %zu * %zu", n, size);
    return product;
}

bool mem_mul_ok(size_t n, size_t size, size_t *product)
{
    return !__builtin_mul_overflow(n, size, product);
}

bool mem_add_ok(size_t a, size_t b, size_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

uint64_t mem_thread_allocs(void)
{
    return n_allocs;
}

uint64_t mem_thread_bytes(void)
{
    return n_alloc_bytes;
}

void mem_fail_after(uint64_t n)
{
    fail_in = n;
}
