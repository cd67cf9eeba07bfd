/* The only malloc and free of the program: counted, and able to fail on demand in tests.
 *
 * mem_alloc and friends never return NULL for want of memory in production: like most servers we
 * abort with a clear message when a few KiB cannot be had (sizes that come from a request or a file
 * are bounded before they get here). Use mem_try_* where size is large or file-derived.
 * Thread: any. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t n_bytes); /* uninitialised; aborts when it fails */
void *mem_zalloc(size_t n_bytes); /* zeroed; aborts when it fails */
void *mem_realloc(void *p, size_t n_bytes); /* aborts when it fails */
void *mem_try_alloc(size_t n_bytes); /* NULL when it fails */
void *mem_try_zalloc(size_t n_bytes);
void *mem_try_realloc(void *p, size_t n_bytes); /* NULL when it fails: p stays as it was */
void *mem_aligned(size_t alignment, size_t n_bytes); /* NULL when it fails; free with mem_free */
void mem_free(void *p); /* NULL is fine */
char *mem_strdup(const char *s);
void *mem_dup(const void *p, size_t n_bytes); /* at least one byte, NUL after the end */

/* n * size with overflow check; aborts on overflow. For products of already bounded numbers. */
size_t mem_mul(size_t n, size_t size);
/* False on overflow. For numbers that come from a file. */
bool mem_mul_ok(size_t n, size_t size, size_t *product);
bool mem_add_ok(size_t a, size_t b, size_t *sum);

uint64_t mem_thread_bytes(void); /* that those calls asked for; what was freed is not taken off */

#endif
