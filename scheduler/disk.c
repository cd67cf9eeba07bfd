/* The disk prefix cache in the schedule: what a prompt has on the disk is read into its frames instead of
 * computed, when that is cheaper; what a prompt was found to share with an earlier one is written there.
 *
 * A fetch is a step that the disk's thread computes (kvpool/disk_seq.h): the sequence is SEQ_FETCHING,
 * is in neither list, and is not parked or dropped meanwhile; a sequence that lacks its frames waits, which is not
 * long, since answers have deadlines. A fetch that finds no frame or loses a block ends where it is: what
 * is there is used and the rest computed; only under windows, where the blocks read so far have gaps, all
 * is computed.
 *
 * Saving begins at the first hit: a prompt that is never repeated is not worth a file. Blocks are copied one per
 * turn, and the request need not live on. Thread: engine. */
#include "scheduler/disk.h"

#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/metrics.h"
#include "scheduler/gauges.h"
#include "scheduler/park.h"
#include "scheduler/parked.h"
#include "scheduler/room.h"
#include "scheduler/running.h"

enum status disk_init(struct sched *s, struct err *e)
{
    struct sched_disk *d = &s->disk;
    if (!s->memory.disk)
        return OK;
    d->shelf = (struct kv_shelf){s->memory.disk, s->kv, s->memory.store};
    return kv_saver_new(&d->shelf, &s->layout, SCHED_SAVE_BUFFERS, &d->saver, e);
}

void disk_free(struct sched *s)
{
    kv_saver_free(s->disk.saver);
}

/* ---- fetching ---- */

static bool has_windows(const struct sched *s)
{
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        if (s->layout.group[g].window)
            return true;
    }
    return false;
}

static uint64_t bytes_between(const struct sched *s, uint32_t from, uint32_t end)
{
    uint64_t n = 0, n_blocks = (end - from) / s->layout.n_slots;
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        uint64_t seen = s->layout.group[g].window / s->layout.n_slots + 1;
        bool part = s->layout.group[g].window && seen < n_blocks;
        n += s->layout.group[g].block_bytes * (part ? seen : n_blocks);
    }
    return n;
}

/* An unknown speed counts as fast: trying is how it becomes known. */
static bool is_cheaper(const struct sched *s, uint32_t from, uint32_t end)
{
    double read =
        kv_disk_stats(s->disk.shelf.disk).read_ns_byte * (double)bytes_between(s, from, end);
    return read <=
           s->cost.row_ns * (end - from) + s->cost.kv_ns * (double)cost_kv_read(from, end - from);
}

bool disk_fetches(struct sched *s, struct req *q)
{
    struct sched_disk *d = &s->disk;
    struct seq *first = &q->seq[0];
    if (!d->shelf.disk || q->r->prompt_logprobs || first->forked || first->n_tok < 2 ||
        !kv_seq_resident(&first->kv) || room_oversize(s, req_positions(q->r)))
        return false;
    uint32_t end = kv_fetch_match(&d->shelf, &first->kv, q->r->prompt, first->n_tok - 1);
    if (end <= first->n_kv || !is_cheaper(s, first->n_kv, end))
        return false;
    /* What was promised to it would be lost with a fetch that fails on the way. */
    if (q->reserves && has_windows(s) && end - first->n_kv > s->limits.chunk_max)
        return false;
    kv_fetch_start(&q->fetch, &d->shelf, &first->kv, q->r->prompt, end, q->ticket);
    first->state = SEQ_FETCHING;
    q->fetch_next = d->fetching;
    d->fetching = q;
    d->n_fetching++;
    s->moved = true;
    return true;
}

static void count_fetched(struct sched *s, struct req *q, uint32_t n_tokens)
{
    s->disk.n_bytes[0] += bytes_between(s, 0, n_tokens);
    q->n_cached += n_tokens;
    tenant_charge(s->tenants, q->r->tenant, 0, n_tokens, 0);
    gauges_fetched(s, n_tokens);
}

/* Nothing of the fetch is out any more. */
static void end_fetch(struct sched *s, struct req *q, bool ok)
{
    struct seq *first = &q->seq[0];
    uint32_t n_fetched = first->kv.n_retired - first->n_kv;
    if (!ok && n_fetched > 0 && has_windows(s)) {
        park_drop(s, first);
        parked_insert(s, first);
    } else {
        count_fetched(s, q, n_fetched);
        first->n_kv += n_fetched;
        first->state = SEQ_LIVE;
        running_insert(s, first);
    }
    s->moved = true;
    s->epoch++;
}

/* False: it goes on. */
static bool move_fetch(struct sched *s, struct req *q)
{
    const struct kv_shelf *shelf = &s->disk.shelf;
    struct kv_seq *kv = &q->seq[0].kv;
    enum kv_fetch_state st = kv_fetch_go(&q->fetch, shelf, kv, q->r->prompt, s->limits.chunk_max);
    if (st == KV_FETCH_NO_FRAMES) {
        kv_fetch_cancel(&q->fetch);
        st = kv_fetch_go(&q->fetch, shelf, kv, q->r->prompt, s->limits.chunk_max);
    }
    if (st == KV_FETCH_WAITS)
        return false;
    end_fetch(s, q, st == KV_FETCH_DONE);
    return true;
}

static void move_fetches(struct sched *s)
{
    struct req **at = &s->disk.fetching;
    while (*at) {
        struct req *q = *at, *next = q->fetch_next;
        if (!move_fetch(s, q)) {
            at = &q->fetch_next;
            continue;
        }
        *at = next;
        s->disk.n_fetching--;
        running_end_cancelled(s, q);
    }
}

bool disk_delays_end(struct req *q)
{
    if (q->state != REQ_RUNNING || q->seq[0].state != SEQ_FETCHING)
        return false;
    kv_fetch_cancel(&q->fetch);
    return true;
}

/* ---- saving ---- */

void disk_save(struct sched *s, const struct req *q, uint32_t n_tokens)
{
    struct sched_disk *d = &s->disk;
    if (!d->shelf.disk || d->n_saves == SCHED_SAVES || n_tokens < s->layout.n_slots)
        return;
    d->save[d->n_saves++] = (struct sched_save){.r = q->r, .root = q->root, .n_tokens = n_tokens};
    request_ref(q->r);
    s->moved = true;
}

static void end_save(struct sched_disk *d)
{
    request_unref(d->save[0].r);
    d->n_saves--;
    for (uint32_t i = 0; i < d->n_saves; i++)
        d->save[i] = d->save[i + 1];
}

static void move_saves(struct sched *s)
{
    struct sched_disk *d = &s->disk;
    struct sched_save *v = &d->save[0];
    if (d->n_saves == 0)
        return;
    uint32_t n = kv_save_some(d->saver, &v->at, v->root, v->r->prompt, v->n_tokens, 1);
    bool ends = (v->at.next + 1) * (uint64_t)s->layout.n_slots > v->n_tokens;
    if (ends)
        end_save(d);
    s->moved |= n > 0 || ends;
}

/* ---- both ---- */

static void take_answer(struct sched *s, const struct kv_disk_done *done)
{
    struct req *q = s->disk.fetching;
    if (!done->get) {
        if (done->ok)
            s->disk.n_bytes[1] += s->layout.group[done->group].block_bytes;
        kv_save_done(s->disk.saver, done);
        return;
    }
    while (q && q->fetch.id != done->id)
        q = q->fetch_next;
    CHECKF(q, "an answer of the disk that no request waits for");
    kv_fetch_done(&q->fetch, done);
}

static void take_answers(struct sched *s)
{
    struct kv_disk_done done;
    while (kv_disk_pop(s->disk.shelf.disk, &done)) {
        take_answer(s, &done);
        s->moved = true;
    }
}

void disk_turn(struct sched *s)
{
    if (!s->disk.shelf.disk)
        return;
    take_answers(s);
    move_fetches(s);
    move_saves(s);
}

void disk_stop(struct sched *s)
{
    struct sched_disk *d = &s->disk;
    if (!d->shelf.disk)
        return;
    for (struct req *q = d->fetching; q; q = q->fetch_next)
        kv_fetch_cancel(&q->fetch);
    kv_disk_stop(d->shelf.disk);
    take_answers(s);
    move_fetches(s);
    CHECK(d->n_fetching == 0);
    while (d->n_saves > 0)
        end_save(d);
    disk_gauges(s);
    d->shelf.disk = NULL;
}

void disk_pins(struct sched *s, const struct kv_key *keys, uint32_t n_pin, uint32_t n_unpin)
{
    struct kv_disk *disk = s->disk.shelf.disk;
    if (!disk)
        return;
    if (kv_disk_pin(disk, keys, n_pin) < n_pin)
        log_warn("the index of the disk prefix cache is full: a named prefix is pinned in part");
    kv_disk_unpin(disk, keys + n_pin, n_unpin);
}

void disk_gauges(struct sched *s)
{
    struct sched_disk *d = &s->disk;
    struct metrics *m = s->metrics;
    if (!m || !d->shelf.disk)
        return;
    struct kv_disk_stats st = kv_disk_stats(d->shelf.disk);
    metrics_set(m, METRIC_DISK_BLOCKS, NULL, st.n_blocks);
    metrics_set(m, METRIC_DISK_USED, NULL, (double)st.n_bytes);
    metrics_add(m, METRIC_DISK_BAD, NULL, (double)(st.n_bad - d->seen.n_bad));
    metrics_add(m, METRIC_DISK_ERRORS, NULL, (double)(st.n_faults - d->seen.n_faults));
    metrics_add(m, METRIC_DISK_EVICTED, NULL, (double)(st.n_evicted - d->seen.n_evicted));
    for (uint32_t i = 0; i < 2; i++) {
        metrics_add(m, METRIC_DISK_BYTES, i ? "written" : "read", (double)d->n_bytes[i]);
        d->n_bytes[i] = 0;
    }
    d->seen = st;
}
