/* The only malloc and free in the program: calls are counted, and tests can make them fail.
 *
 * mem_alloc and its variants never return NULL: like most servers, millrace aborts with a clear
 * message when a few KiB cannot be allocated (sizes from a request or a file are bounded before
 * they get here). Use mem_try_* where the size is large or comes from a file.
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
void *mem_try_realloc(void *p, size_t n_bytes); /* NULL when it fails; p is then unchanged */
void *mem_aligned(size_t alignment, size_t n_bytes); /* NULL when it fails; free with mem_free */
void mem_free(void *p); /* NULL is allowed */
char *mem_strdup(const char *s);
void *mem_dup(const void *p, size_t n_bytes); /* at least one byte; a NUL follows the end */

/* n * size; aborts on overflow. For products of numbers that are already bounded. */
size_t mem_mul(size_t n, size_t size);
/* False on overflow. For numbers from a file. */
bool mem_mul_ok(size_t n, size_t size, size_t *product);
bool mem_add_ok(size_t a, size_t b, size_t *sum);

uint64_t mem_thread_bytes(void); /* requested by those calls; frees are not subtracted */

#endif
