/* Scores that wait for their text; see held.h. */
#include "server/api/held.h"

#include <string.h>

/* Followed by event.n_top alternatives, and what aligns the next one. */
struct held_record {
    uint64_t start; /* n_made before the token */
    struct event event;
};

static size_t record_bytes(const struct event *ev)
{
    size_t n = sizeof(struct held_record) + ev->n_top * sizeof(struct event_top);
    return (n + 7) & ~(size_t)7;
}

void held_init(struct held *h, const struct tokenizer *tok, bool skip_special)
{
    detok_init(&h->detok, tok, skip_special);
    h->detok.at_start = false; /* as for the output of the engine thread */
    buf_reserve(&h->text, detok_bound(tok));
}

void held_release(struct held *h)
{
    buf_release(&h->text);
    buf_release(&h->records);
}

/* So that the records do not grow with a stream of which something is always held. */
static void drop_taken(struct held *h)
{
    size_t n = h->records.len - h->at;
    if (h->at == 0 || h->at < n)
        return;
    memmove(h->records.ptr, h->records.ptr + h->at, n);
    h->records.len = n;
    h->at = 0;
}

static void keep(struct held *h, const struct event *ev)
{
    static const char zeros[8];
    drop_taken(h);
    struct held_record record = {h->n_made, *ev};
    size_t end = h->records.len + record_bytes(ev);
    record.event.n_text = 0;
    buf_add(&h->records, &record, sizeof(record));
    buf_add(&h->records, event_tops(ev), ev->n_top * sizeof(struct event_top));
    buf_add(&h->records, zeros, end - h->records.len);
}

void held_add(struct held *h, const struct event *ev, bool shown, bool scored)
{
    if (scored)
        keep(h, ev);
    if (shown)
        h->n_made += detok_push(&h->detok, ev->token, h->text.ptr, detok_bound(h->detok.tok));
    h->n_told += ev->n_text;
}

const struct event *held_take(struct held *h, bool all)
{
    if (h->at == h->records.len)
        return NULL;
    const struct held_record *r = (const struct held_record *)(h->records.ptr + h->at);
    if (!all && r->start >= h->n_told)
        return NULL;
    h->at += record_bytes(&r->event);
    return &r->event;
}
