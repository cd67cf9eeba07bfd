/* GET /v1/requests, /debug/kv and /debug/journal: what the engine thread holds. */
#include "server/api/api.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "server/exchange.h"
#include "server/api/format.h"
#include "server/query.h"
#include "server/question.h"
#include "server/server.h"

/* Rows of a page; a client asks for the next one with ?from=. */
enum { MAX_SEQUENCES = 1024, MAX_BLOCKS = 4096, MAX_RECORDS = 1 << 24 };

/* False after an answer that says what is wrong. */
static bool read_from(struct exchange *ex, uint64_t *from)
{
    const char *text = query_find(ex, "from");
    struct err e;
    *from = 0;
    if (!text)
        return true;
    size_t n = strlen(text);
    for (size_t i = 0; i < n && n <= 10; i++) {
        if (text[i] < '0' || text[i] > '9')
            n = 0;
        else
            *from = *from * 10 + (uint64_t)(text[i] - '0');
    }
    if (n > 0 && n <= 10)
        return true;
    err_set_field(&e, ERR_INVALID, "from", NULL, "from is not a whole number of at most 10 digits");
    reply_err(ex, &e);
    return false;
}

static double seconds(uint64_t ns)
{
    return (double)ns / (double)NS_PER_S;
}

/* A page's place among all rows, and where the next one begins. */
static void add_page(struct buf *out, const struct sched_ask *a)
{
    uint64_t next = a->from + a->n;
    buf_printf(out, "\"total\":%llu,\"from\":%llu,\"next\":", (unsigned long long)a->n_all,
               (unsigned long long)a->from);
    if (next < a->n_all)
        buf_printf(out, "%llu", (unsigned long long)next);
    else
        buf_add_c(out, "null");
}

/* ---- sequences ---- */

/* Names are those of the policy that the asker was let in under. */
static void add_tenant(const struct exchange *ex, struct buf *out, uint32_t slot)
{
    const struct policy *p = ex->grant.policy;
    for (uint32_t i = 0; p && i < p->n_tenants; i++) {
        if (p->tenant[i].slot == slot) {
            json_add_string(out, str_of(p->tenant[i].name));
            return;
        }
    }
    buf_add_c(out, "null");
}

static void add_blocks(struct buf *out, const struct seq_view *v)
{
    buf_add_char(out, '{');
    for (int t = 0; t < N_VIEW_TIERS; t++)
        buf_printf(out, "\"%s\":%u,", view_tier_name((enum view_tier)t), v->n_blocks[t]);
    buf_printf(out, "\"shared\":%u,\"age_s\":%.6f}", v->n_shared, seconds(v->idle_ns));
}

static void add_sequence(const struct exchange *ex, struct buf *out, const struct seq_view *v)
{
    buf_add_c(out, "{\"id\":");
    json_add_string(out, str_of(v->name));
    buf_add_c(out, ",\"tenant\":");
    add_tenant(ex, out, v->tenant);
    buf_printf(out, ",\"priority\":%d,\"choice\":%u,\"n\":%u,\"state\":\"%s\"", v->priority,
               v->choice, v->n_choices, view_state_name(v->state));
    buf_printf(out, ",\"prompt_tokens\":%u,\"output_tokens\":%u,\"max_tokens\":%u", v->n_prompt,
               v->n_output, v->max_tokens);
    buf_printf(out, ",\"tokens\":%u,\"kv_tokens\":%u,\"cached_tokens\":%u,\"preemptions\":%u",
               v->n_tokens, v->n_kv, v->n_cached, v->n_preempted);
    buf_add_c(out, ",\"blocks\":");
    add_blocks(out, v);
    buf_printf(out, ",\"age_s\":%.6f,\"timings\":", seconds(timing_total_ns(&v->timing)));
    format_timings(out, &v->timing);
    buf_add_char(out, '}');
}

static void format_sequences(struct question *q)
{
    const struct sched_ask *a = &q->ask;
    struct buf *out = &q->ex->reply.body;
    reply_json(q->ex, 200);
    buf_printf(out, "{\"object\":\"list\",\"running\":%u,\"queued\":%u,\"parked\":%u,",
               a->view.n_running, a->view.n_queued, a->view.n_parked);
    add_page(out, a);
    buf_add_c(out, ",\"data\":[");
    for (uint32_t i = 0; i < a->n; i++) {
        if (i)
            buf_add_char(out, ',');
        add_sequence(q->ex, out, &a->item.seq[i]);
    }
    buf_add_c(out, "]}");
}

void api_requests(struct exchange *ex)
{
    uint64_t from;
    if (question_reply(ex->question) || !read_from(ex, &from))
        return;
    struct question *q = question_new(ex, ASK_SEQUENCES, MAX_SEQUENCES, format_sequences);
    if (!q)
        return;
    struct sched_ask *a = &q->ask;
    a->from = from;
    a->one_tenant = !ex->grant.admin;
    a->tenant = ex->grant.tenant->slot;
}

/* ---- blocks ---- */

static void add_group(struct buf *out, const struct kv_view_group *g)
{
    buf_printf(out,
               "{\"window\":%u,\"block_bytes\":%u,\"frames\":%u,\"free\":%u,\"cached\":%u,"
               "\"promised\":%u,\"slots\":%u,\"slots_used\":%u}",
               g->window, g->block_bytes, g->n_frames, g->n_free, g->n_cached, g->n_promised,
               g->n_slots, g->n_slots_used);
}

static void add_audit(struct buf *out, const struct sched_ask *a)
{
    if (!a->audited) {
        buf_add_c(out, "null");
        return;
    }
    buf_printf(out, "{\"ok\":%s,\"error\":", a->audit_error.status == OK ? "true" : "false");
    if (a->audit_error.status == OK)
        buf_add_c(out, "null");
    else
        json_add_string(out, str_of(a->audit_error.text));
    buf_add_char(out, '}');
}

static void add_totals(struct buf *out, const struct sched_view *v)
{
    static const struct {
        const char *name;
        size_t offset;
    } count[] = {
        {"token_slots_allocated", offsetof(struct sched_view, slots_allocated)},
        {"token_slots_written", offsetof(struct sched_view, slots_written)},
        {"prefix_queries", offsetof(struct sched_view, n_queries)},
        {"prefix_query_tokens", offsetof(struct sched_view, n_query_tokens)},
        {"prefix_hit_tokens", offsetof(struct sched_view, n_hit_tokens)},
        {"evicted_blocks", offsetof(struct sched_view, n_evicted)},
        {"spilled_blocks", offsetof(struct sched_view, n_spilled)},
        {"loaded_blocks", offsetof(struct sched_view, n_loaded)},
        {"failed_copies", offsetof(struct sched_view, n_failed)},
        {"preemptions", offsetof(struct sched_view, n_preempted)},
        {"steps", offsetof(struct sched_view, n_steps)},
    };
    buf_printf(out, "{\"block_tokens\":%u,\"copies_in_flight\":%u", v->block_tokens, v->n_jobs);
    for (size_t i = 0; i < sizeof(count) / sizeof(count[0]); i++) {
        uint64_t x;
        memcpy(&x, (const char *)v + count[i].offset, sizeof(x));
        buf_printf(out, ",\"%s\":%llu", count[i].name, (unsigned long long)x);
    }
    buf_add_c(out, ",\"groups\":[");
    for (uint32_t i = 0; i < v->n_groups; i++) {
        if (i)
            buf_add_char(out, ',');
        add_group(out, &v->group[i]);
    }
    buf_add_c(out, "]}");
}

static void add_block(struct buf *out, const struct block_view *b)
{
    buf_printf(out,
               "{\"group\":%u,\"block\":%u,\"state\":\"%s\",\"tier\":\"%s\",\"place\":%u,"
               "\"clean\":%s,\"refs\":%u,\"pins\":%u,\"filled\":%u,\"hits\":%llu}",
               b->group, b->block, b->state, view_tier_name(b->tier), b->place,
               b->clean ? "true" : "false", b->n_refs, b->n_pins, b->n_filled,
               (unsigned long long)b->n_hits);
}

static void format_kv(struct question *q)
{
    const struct sched_ask *a = &q->ask;
    struct buf *out = &q->ex->reply.body;
    reply_json(q->ex, 200);
    buf_add_c(out, "{\"totals\":");
    add_totals(out, &a->view);
    buf_add_c(out, ",\"audit\":");
    add_audit(out, a);
    buf_add_char(out, ',');
    add_page(out, a);
    buf_add_c(out, ",\"blocks\":[");
    for (uint32_t i = 0; i < a->n; i++) {
        if (i)
            buf_add_char(out, ',');
        add_block(out, &a->item.block[i]);
    }
    buf_add_c(out, "]}");
}

void api_debug_kv(struct exchange *ex)
{
    uint64_t from;
    if (question_reply(ex->question) || !read_from(ex, &from))
        return;
    const char *audit = query_find(ex, "audit");
    struct question *q = question_new(ex, ASK_BLOCKS, MAX_BLOCKS, format_kv);
    if (!q)
        return;
    struct sched_ask *a = &q->ask;
    a->from = from;
    a->audit = audit && strcmp(audit, "0") != 0;
}

/* ---- journal ---- */

static void format_journal(struct question *q)
{
    struct buf *out = &q->ex->reply.body;
    reply_json(q->ex, 200);
    q->ex->reply.content_type = "application/jsonl";
    journal_write_config(out, &q->ask.view.journal);
    for (uint32_t i = 0; i < q->ask.n; i++)
        journal_write(out, &q->ask.item.record[i]);
}

void api_debug_journal(struct exchange *ex)
{
    if (question_reply(ex->question))
        return;
    uint64_t n = (uint64_t)ex->srv->set->sched_journal / sizeof(struct journal_record);
    question_new(ex, ASK_JOURNAL, n < MAX_RECORDS ? (uint32_t)n : MAX_RECORDS, format_journal);
}
