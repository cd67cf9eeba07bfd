/* Bounded queues; see ring.h.
 *
 * byte_ring: head and tail run freely (position = value & (cap - 1)) and are multiples of 8. The
 * producer publishes with a release store of tail, the consumer gives space back with a release
 * store of head; each reads the other's with acquire. A record never wraps: when the end of the
 * memory is too short for it, a marker fills the rest. */
#include "base/ring.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"

/* The length takes 4 of the header's 8 bytes, so that payloads are 8-byte aligned. */
enum { HEADER_BYTES = 8 };
#define WRAP_MARKER UINT32_MAX

static uint32_t header_get(const struct byte_ring *r, uint_fast32_t at)
{
    uint32_t n;
    memcpy(&n, r->data + (at & (r->cap - 1)), sizeof(n));
    return n;
}

static void header_put(struct byte_ring *r, uint_fast32_t at, uint32_t n)
{
    memcpy(r->data + (at & (r->cap - 1)), &n, sizeof(n));
}

static uint32_t record_bytes(uint32_t n)
{
    return HEADER_BYTES + ((n + 7u) & ~7u);
}

void byte_ring_init(struct byte_ring *r, uint32_t cap_bytes)
{
    CHECKF(cap_bytes >= 16 && (cap_bytes & (cap_bytes - 1)) == 0 && cap_bytes <= 1u << 30,
           "ring capacity %u is no power of two from 16 to 2^30", cap_bytes);
    r->data = mem_alloc(cap_bytes);
    r->cap = cap_bytes;
    atomic_init(&r->head, 0);
    atomic_init(&r->tail, 0);
}

void byte_ring_release(struct byte_ring *r)
{
    mem_free(r->data);
    r->data = NULL;
    r->cap = 0;
}

/* Free bytes before the end of the memory, and free bytes at its start after wrapping. */
static void free_spans(const struct byte_ring *r, uint_fast32_t tail, uint32_t *at_end,
                       uint32_t *at_start)
{
    uint_fast32_t head = atomic_load_explicit(&r->head, memory_order_acquire);
    uint32_t n_free = r->cap - (uint32_t)(tail - head);
    uint32_t to_end = r->cap - (uint32_t)(tail & (r->cap - 1));
    *at_end = n_free < to_end ? n_free : to_end;
    *at_start = n_free - *at_end;
}

uint32_t byte_ring_room(const struct byte_ring *r)
{
    uint32_t at_end, at_start;
    free_spans(r, atomic_load_explicit(&r->tail, memory_order_relaxed), &at_end, &at_start);
    uint32_t most = at_end > at_start ? at_end : at_start;
    return most > HEADER_BYTES ? most - HEADER_BYTES : 0;
}

void *byte_ring_reserve(struct byte_ring *r, uint32_t n)
{
    uint32_t at_end, at_start;
    uint_fast32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    if (n > r->cap - HEADER_BYTES)
        return NULL;
    free_spans(r, tail, &at_end, &at_start);
    uint32_t need = record_bytes(n);
    if (need > at_end) {
        if (need > at_start)
            return NULL;
        /* at_start > 0, so at_end extends to the end of the memory: the marker may fill all of it. */
        header_put(r, tail, WRAP_MARKER);
        tail += at_end;
        atomic_store_explicit(&r->tail, tail, memory_order_release);
    }
    header_put(r, tail, n);
    return r->data + (tail & (r->cap - 1)) + HEADER_BYTES;
}

void byte_ring_commit(struct byte_ring *r)
{
    uint_fast32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    uint32_t n = header_get(r, tail);
    DCHECK(n <= r->cap - HEADER_BYTES);
    atomic_store_explicit(&r->tail, tail + record_bytes(n), memory_order_release);
}

const void *byte_ring_peek(struct byte_ring *r, uint32_t *n)
{
    uint_fast32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    uint_fast32_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);
    if (head != tail && header_get(r, head) == WRAP_MARKER) {
        head += r->cap - (head & (r->cap - 1));
        atomic_store_explicit(&r->head, head, memory_order_release);
    }
    if (head == tail)
        return NULL;
    *n = header_get(r, head);
    return r->data + (head & (r->cap - 1)) + HEADER_BYTES;
}

void byte_ring_pop(struct byte_ring *r)
{
    uint_fast32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    DCHECK(head != atomic_load_explicit(&r->tail, memory_order_acquire));
    atomic_store_explicit(&r->head, head + record_bytes(header_get(r, head)), memory_order_release);
}

struct mpsc {
    pthread_mutex_t lock;
    void **items; /* owns, cap pointers */
    uint32_t cap;
    uint32_t first; /* under lock */
    uint32_t n; /* under lock */
    int event_fd;
};

struct mpsc *mpsc_new(uint32_t capacity, struct err *e)
{
    CHECK(capacity > 0);
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) {
        err_set(e, ERR_IO, "cannot make an eventfd: %s", strerror(errno));
        return NULL;
    }
    struct mpsc *q = mem_zalloc(sizeof(*q));
    pthread_mutex_init(&q->lock, NULL);
    q->items = mem_alloc(mem_mul(capacity, sizeof(*q->items)));
    q->cap = capacity;
    q->event_fd = fd;
    return q;
}

void mpsc_free(struct mpsc *q)
{
    if (!q)
        return;
    close(q->event_fd);
    pthread_mutex_destroy(&q->lock);
    mem_free(q->items);
    mem_free(q);
}

bool mpsc_push(struct mpsc *q, void *item)
{
    pthread_mutex_lock(&q->lock);
    bool fits = q->n < q->cap;
    if (fits) {
        q->items[(q->first + (uint64_t)q->n) % q->cap] = item;
        q->n++;
    }
    pthread_mutex_unlock(&q->lock);
    if (fits)
        mpsc_wake(q);
    return fits;
}

void *mpsc_pop(struct mpsc *q)
{
    void *item = NULL;
    pthread_mutex_lock(&q->lock);
    if (q->n) {
        item = q->items[q->first];
        q->first = (q->first + 1) % q->cap;
        q->n--;
    }
    pthread_mutex_unlock(&q->lock);
    return item;
}

void mpsc_wake(struct mpsc *q)
{
    /* Fails only when the counter is full, and then the consumer is awake anyway. */
    uint64_t one = 1;
    ssize_t written;
    do
        written = write(q->event_fd, &one, sizeof(one));
    while (written < 0 && errno == EINTR);
}

void mpsc_wait(struct mpsc *q, int timeout_ms)
{
    pthread_mutex_lock(&q->lock);
    bool empty = q->n == 0;
    pthread_mutex_unlock(&q->lock);
    struct pollfd p = {.fd = q->event_fd, .events = POLLIN};
    if (poll(&p, 1, empty ? timeout_ms : 0) <= 0)
        return;
    uint64_t count;
    ssize_t n_read;
    do
        n_read = read(q->event_fd, &count, sizeof(count));
    while (n_read < 0 && errno == EINTR);
}
