/* Bounded queues between threads.
 *
 * struct byte_ring: single producer, single consumer, variable-size records, lock-free. Carries a
 *   request's events from the engine thread to its HTTP loop.
 * struct mpsc: many producers, one consumer, pointers, bounded; an eventfd wakes the consumer.
 *   Carries requests and control messages into the engine thread. */
#ifndef BASE_RING_H
#define BASE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Record = 8-byte head (4-byte length) + payload, contiguous (a wrap marker fills the end), 8-byte
 * aligned. A payload of up to cap / 2 - 8 bytes always fits into an empty ring; whether a larger one
 * fits depends on the position of head and tail. */
struct byte_ring {
    uint8_t *data; /* owns, cap bytes, a power of two */
    uint32_t cap;
    _Alignas(64) atomic_uint_fast32_t head; /* written by the consumer */
    _Alignas(64) atomic_uint_fast32_t tail; /* written by the producer */
};

void byte_ring_init(struct byte_ring *r, uint32_t cap_bytes);
void byte_ring_release(struct byte_ring *r);
/* Producer. Largest payload that byte_ring_push would accept now. */
uint32_t byte_ring_room(const struct byte_ring *r);
/* Producer. Returns space for n payload bytes, to be committed afterwards, or NULL when they do not fit. */
void *byte_ring_reserve(struct byte_ring *r, uint32_t n);
void byte_ring_commit(struct byte_ring *r);
/* Consumer. The next record or NULL; valid until byte_ring_pop. */
const void *byte_ring_peek(struct byte_ring *r, uint32_t *n);
void byte_ring_pop(struct byte_ring *r);

struct mpsc;
struct mpsc *mpsc_new(uint32_t capacity, struct err *e);
void mpsc_free(struct mpsc *q);
bool mpsc_push(struct mpsc *q, void *item); /* any thread; false when full; wakes the consumer */
void *mpsc_pop(struct mpsc *q); /* consumer; NULL when empty */
void mpsc_wake(struct mpsc *q); /* any thread: ends the consumer's wait */
/* Consumer: sleeps until a push, a wake, or the end of timeout_ms (-1: no timeout). */
void mpsc_wait(struct mpsc *q, int timeout_ms);

#endif
