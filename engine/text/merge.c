/* The merge loop of BPE: (left, right) -> (rank, token), lowest rank first, leftmost among equals.
 * Short pieces (nearly all): a scan for the least rank per merge. Long ones: a linked list and a
 * heap of (rank, position), so that a piece of a million symbols costs n log n. */
#include "base/check.h"
#include "base/mem.h"
#include "engine/text/vocab.h"

#define NO_KEY UINT64_MAX
#define NO_RANK UINT32_MAX
#define NONE UINT32_MAX

enum { SCAN_MAX = 24 }; /* symbols; above, the heap is faster */

static uint32_t pair_hash(uint64_t key)
{
    key *= 0x9e3779b97f4a7c15u;
    return (uint32_t)(key >> 32) ^ (uint32_t)(key >> 13);
}

void pair_map_init(struct pair_map *m, uint64_t n)
{
    uint64_t cap = 16;
    while (cap < n * 2)
        cap *= 2;
    m->slot = mem_alloc(mem_mul(cap, sizeof *m->slot));
    m->mask = (uint32_t)(cap - 1);
    for (uint64_t i = 0; i < cap; i++)
        m->slot[i].key = NO_KEY;
}

void pair_map_release(struct pair_map *m)
{
    mem_free(m->slot);
    m->slot = NULL;
}

static struct pair_slot *find_pair(const struct pair_map *m, uint64_t key)
{
    uint32_t i = pair_hash(key) & m->mask;
    while (m->slot[i].key != key && m->slot[i].key != NO_KEY)
        i = (i + 1) & m->mask;
    return &m->slot[i];
}

void pair_map_set(struct pair_map *m, uint32_t left, uint32_t right, uint32_t rank, uint32_t id)
{
    uint64_t key = (uint64_t)left << 32 | right;
    *find_pair(m, key) = (struct pair_slot){key, rank, id};
}

static uint32_t rank_of(const struct pair_map *m, uint32_t left, uint32_t right)
{
    const struct pair_slot *s = find_pair(m, (uint64_t)left << 32 | right);
    return s->key == NO_KEY ? NO_RANK : s->rank;
}

void merge_work_release(struct merge_work *w)
{
    mem_free(w->sym);
    mem_free(w->prev);
    mem_free(w->next);
    mem_free(w->rank);
    mem_free(w->heap);
    *w = (struct merge_work){0};
}

static void fit(uint32_t **p, uint32_t n)
{
    mem_free(*p);
    *p = mem_alloc(mem_mul(n, sizeof **p));
}

/* What was in the arrays is lost. */
void merge_work_reserve(struct merge_work *w, uint32_t n)
{
    if (n <= w->cap)
        return;
    w->cap = n < 256 ? 256 : n;
    fit(&w->sym, w->cap);
    fit(&w->rank, w->cap);
}

static void reserve_links(struct merge_work *w)
{
    if (w->cap_links >= w->cap)
        return;
    w->cap_links = w->cap;
    fit(&w->prev, w->cap);
    fit(&w->next, w->cap);
    mem_free(w->heap);
    /* Each merge takes one entry and adds two, and there are fewer merges than symbols. */
    w->heap = mem_alloc(mem_mul(w->cap, 2 * sizeof *w->heap));
}

static uint32_t merge_scan(const struct pair_map *m, struct merge_work *w, uint32_t n)
{
    uint32_t *sym = w->sym, *rank = w->rank;
    for (uint32_t i = 0; i + 1 < n; i++)
        rank[i] = rank_of(m, sym[i], sym[i + 1]);
    while (n > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == NO_RANK)
            break;
        sym[best] = find_pair(m, (uint64_t)sym[best] << 32 | sym[best + 1])->id;
        n--;
        for (uint32_t i = best + 1; i < n; i++) {
            sym[i] = sym[i + 1];
            rank[i] = rank[i + 1];
        }
        if (best + 1 < n)
            rank[best] = rank_of(m, sym[best], sym[best + 1]);
        if (best > 0)
            rank[best - 1] = rank_of(m, sym[best - 1], sym[best]);
    }
    return n;
}

/* ---- heap of rank << 32 | position, four children a node, least first ---- */

static void sift_down(uint64_t *heap, uint32_t n, uint32_t i)
{
    uint64_t value = heap[i];
    for (;;) {
        uint64_t child = (uint64_t)i * 4 + 1;
        if (child >= n)
            break;
        uint64_t end = child + 4 < n ? child + 4 : n;
        uint64_t least = child;
        for (uint64_t c = child + 1; c < end; c++)
            if (heap[c] < heap[least])
                least = c;
        if (heap[least] >= value)
            break;
        heap[i] = heap[least];
        i = (uint32_t)least;
    }
    heap[i] = value;
}

static void heap_push(uint64_t *heap, uint32_t *n, uint64_t value)
{
    uint32_t i = (*n)++;
    while (i > 0 && heap[(i - 1) / 4] > value) {
        heap[i] = heap[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    heap[i] = value;
}

static uint64_t heap_pop(uint64_t *heap, uint32_t *n)
{
    uint64_t top = heap[0];
    heap[0] = heap[--*n];
    if (*n)
        sift_down(heap, *n, 0);
    return top;
}

static void rerank(const struct pair_map *m, struct merge_work *w, uint32_t at, uint32_t *n_heap)
{
    uint32_t right = w->next[at];
    w->rank[at] = right == NONE ? NO_RANK : rank_of(m, w->sym[at], w->sym[right]);
    if (w->rank[at] != NO_RANK)
        heap_push(w->heap, n_heap, (uint64_t)w->rank[at] << 32 | at);
}

static uint32_t heap_fill(const struct pair_map *m, struct merge_work *w, uint32_t n)
{
    uint32_t n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        w->prev[i] = i ? i - 1 : NONE;
        w->next[i] = i + 1 < n ? i + 1 : NONE;
        w->rank[i] = i + 1 < n ? rank_of(m, w->sym[i], w->sym[i + 1]) : NO_RANK;
        if (w->rank[i] != NO_RANK)
            w->heap[n_heap++] = (uint64_t)w->rank[i] << 32 | i;
    }
    for (uint32_t i = n_heap / 4 + 1; i-- > 0;)
        if (i < n_heap)
            sift_down(w->heap, n_heap, i);
    return n_heap;
}

static uint32_t merge_heap(const struct pair_map *m, struct merge_work *w, uint32_t n)
{
    reserve_links(w);
    uint32_t n_heap = heap_fill(m, w, n);
    while (n_heap) {
        uint64_t top = heap_pop(w->heap, &n_heap);
        uint32_t at = (uint32_t)top;
        if (w->rank[at] != (uint32_t)(top >> 32))
            continue; /* the pair changed since it was pushed */
        uint32_t right = w->next[at];
        w->sym[at] = find_pair(m, (uint64_t)w->sym[at] << 32 | w->sym[right])->id;
        w->rank[right] = NO_RANK;
        w->next[at] = w->next[right];
        if (w->next[at] != NONE)
            w->prev[w->next[at]] = at;
        rerank(m, w, at, &n_heap);
        if (w->prev[at] != NONE)
            rerank(m, w, w->prev[at], &n_heap);
    }
    uint32_t n_out = 0;
    for (uint32_t i = 0; i != NONE; i = w->next[i])
        w->sym[n_out++] = w->sym[i];
    return n_out;
}

uint32_t merge_run(const struct pair_map *m, struct merge_work *w, uint32_t n)
{
    DCHECK(n <= w->cap);
    if (n < 2)
        return n;
    return n <= SCAN_MAX ? merge_scan(m, w, n) : merge_heap(m, w, n);
}
