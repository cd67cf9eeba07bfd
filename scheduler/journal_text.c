/* Journal records as JSON lines and back: both directions derive from one table of members. */
#include <stddef.h>
#include <string.h>

#include "base/json.h"
#include "scheduler/journal.h"

struct member {
    const char *name;
    uint16_t offset;
    uint8_t size;
    bool is_signed;
};

#define RECORD(field)                                                                              \
    {                                                                                              \
#field, offsetof(struct journal_record, field),                                            \
            sizeof(((struct journal_record *)0)->field), false                                     \
    }
#define OF(kind, field, sign)                                                                      \
    {                                                                                              \
#field, offsetof(struct journal_record, u.kind.field),                                     \
            sizeof(((struct journal_record *)0)->u.kind.field), sign                               \
    }
#define CONFIG(field)                                                                              \
    {                                                                                              \
#field, offsetof(struct journal_config, field),                                            \
            sizeof(((struct journal_config *)0)->field), false                                     \
    }
#define GROUP(field)                                                                               \
    {                                                                                              \
#field, offsetof(struct journal_group, field), sizeof(((struct journal_group *)0)->field), \
            false                                                                                  \
    }
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static const struct member common[] = {RECORD(at_ns), RECORD(request)};
static const struct member submit[] = {RECORD(n_choices), OF(submit, n_prompt, false),
                                       OF(submit, max_tokens, false), OF(submit, tenant, false),
                                       OF(submit, priority, true)};
static const struct member step[] = {
    OF(step, took_ns, false),       OF(step, kv_read, false),     OF(step, between_ns, false),
    OF(step, n_rows, false),        OF(step, n_spans, false),     OF(step, n_outs, false),
    OF(step, n_prompt_rows, false), OF(step, n_preempted, false), OF(step, n_swaps, false),
    OF(step, n_queued, false),      OF(step, n_running, false)};
static const struct member end[] = {RECORD(status), OF(end, queue_ns, false),
                                    OF(end, first_token_ns, false), OF(end, n_output, false),
                                    OF(end, n_cached, false)};
static const struct member config[] = {
    CONFIG(max_running),    CONFIG(max_queued),   CONFIG(max_batch_tokens), CONFIG(chunk_max),
    CONFIG(step_target_ms), CONFIG(max_context),  CONFIG(block_tokens),     CONFIG(n_groups),
    CONFIG(prefix),         CONFIG(reserve),      CONFIG(preempt),          CONFIG(ram_ps_byte),
    CONFIG(write_ps_byte),  CONFIG(read_ps_byte),
};
static const struct member group[] = {GROUP(window), GROUP(n_frames), GROUP(n_host), GROUP(n_file),
                                      GROUP(block_bytes)};

static const struct {
    const char *name;
    const struct member *member;
    size_t n;
} kinds[N_JOURNAL_KINDS] = {
#define X(id, text) [JOURNAL_##id].name = text,
    JOURNAL_KINDS(X)
#undef X
        [JOURNAL_SUBMIT]
            .member = submit,
    [JOURNAL_SUBMIT].n = COUNT(submit),
    [JOURNAL_STEP].member = step,
    [JOURNAL_STEP].n = COUNT(step),
    [JOURNAL_END].member = end,
    [JOURNAL_END].n = COUNT(end),
};

/* ---- out ---- */

static uint64_t value_of(const struct member *m, const void *from)
{
    const char *at = (const char *)from + m->offset;
    uint64_t x = 0;
    memcpy(&x, at, m->size); /* little endian: the low bytes come first */
    return x;
}

static void write_members(struct buf *out, const struct member *m, size_t n, const void *from)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t x = value_of(&m[i], from);
        if (m[i].is_signed)
            buf_printf(out, ",\"%s\":%d", m[i].name, (int)(int32_t)(uint32_t)x);
        else
            buf_printf(out, ",\"%s\":%llu", m[i].name, (unsigned long long)x);
    }
}

void journal_write_config(struct buf *out, const struct journal_config *c)
{
    buf_printf(out, "{\"kind\":\"%s\"", kinds[JOURNAL_CONFIG].name);
    write_members(out, config, COUNT(config), c);
    buf_add_c(out, ",\"groups\":[");
    for (uint32_t i = 0; i < c->n_groups && i < COUNT(c->group); i++) {
        struct buf one = {0};
        write_members(&one, group, COUNT(group), &c->group[i]);
        buf_printf(out, "%s{%s}", i ? "," : "", one.ptr + 1);
        buf_release(&one);
    }
    buf_add_c(out, "]}\n");
}

void journal_write(struct buf *out, const struct journal_record *r)
{
    uint32_t kind = r->kind < N_JOURNAL_KINDS ? r->kind : JOURNAL_NONE;
    buf_printf(out, "{\"kind\":\"%s\"", kinds[kind].name);
    write_members(out, common, COUNT(common), r);
    write_members(out, kinds[kind].member, kinds[kind].n, r);
    if (kind == JOURNAL_PROMPT) {
        buf_add_c(out, ",\"print\":[");
        for (uint32_t i = 0; i < JOURNAL_PROMPT_PRINTS && r->u.print[i]; i++)
            buf_printf(out, "%s%u", i ? "," : "", r->u.print[i]);
        buf_add_char(out, ']');
    }
    buf_add_c(out, "}\n");
}

/* ---- in ---- */

static enum status read_members(const struct json *v, const struct member *m, size_t n, void *to,
                                struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        const struct json *value = json_get(v, m[i].name);
        int64_t negative = 0;
        uint64_t x = 0;
        if (!value)
            continue;
        bool fits =
            json_is(value, JSON_NUMBER) &&
            (json_u64(value, &x) || (m[i].is_signed && json_i64(value, INT32_MIN, -1, &negative)));
        if (negative)
            x = (uint32_t)(int32_t)negative;
        if (!fits || (m[i].size < 8 && x >> (8 * m[i].size)))
            return err_set(e, ERR_FORMAT, "\"%s\" is not a number of at most %u bytes", m[i].name,
                           m[i].size);
        memcpy((char *)to + m[i].offset, &x, m[i].size);
    }
    return OK;
}

static enum status read_config(const struct json *v, struct journal_config *c, struct err *e)
{
    enum status st = read_members(v, config, COUNT(config), c, e);
    const struct json *groups = json_get(v, "groups");
    if (st != OK)
        return st;
    if (!json_is(groups, JSON_ARRAY) || json_count(groups) != c->n_groups || c->n_groups < 1 ||
        c->n_groups > COUNT(c->group))
        return err_set(e, ERR_FORMAT, "\"groups\" is not a list of n_groups objects");
    const struct json *one = json_first(groups);
    for (uint32_t i = 0; i < c->n_groups && st == OK; i++, one = json_next(one)) {
        if (!json_is(one, JSON_OBJECT))
            return err_set(e, ERR_FORMAT, "a member of \"groups\" is not an object");
        st = read_members(one, group, COUNT(group), &c->group[i], e);
    }
    return st;
}

static enum status read_prints(const struct json *v, struct journal_record *r, struct err *e)
{
    const struct json *list = json_get(v, "print");
    if (!json_is(list, JSON_ARRAY) || json_count(list) > JOURNAL_PROMPT_PRINTS)
        return err_set(e, ERR_FORMAT, "\"print\" is not a list of at most %d numbers",
                       JOURNAL_PROMPT_PRINTS);
    const struct json *one = json_first(list);
    for (uint32_t i = 0; one; i++, one = json_next(one)) {
        uint64_t x;
        if (!json_is(one, JSON_NUMBER) || !json_u64(one, &x) || x > UINT32_MAX)
            return err_set(e, ERR_FORMAT, "a member of \"print\" is not a 32-bit number");
        r->u.print[i] = (uint32_t)x;
    }
    return OK;
}

static enum status read_object(const struct json *v, struct journal_record *r,
                               struct journal_config *c, struct err *e)
{
    const struct json *name = json_is(v, JSON_OBJECT) ? json_get(v, "kind") : NULL;
    if (!json_is(name, JSON_STRING))
        return err_set(e, ERR_FORMAT, "no JSON object with a string \"kind\"");
    for (uint32_t k = 1; k < N_JOURNAL_KINDS; k++) {
        if (!str_eq_c(json_string(name), kinds[k].name))
            continue;
        r->kind = (uint8_t)k;
        if (k == JOURNAL_CONFIG)
            return read_config(v, c, e);
        enum status st = read_members(v, common, COUNT(common), r, e);
        if (st == OK)
            st = read_members(v, kinds[k].member, kinds[k].n, r, e);
        return st == OK && k == JOURNAL_PROMPT ? read_prints(v, r, e) : st;
    }
    return OK;
}

enum status journal_read(struct str line, struct journal_record *r, struct journal_config *c,
                         struct err *e)
{
    struct json_doc *doc;
    struct json_limits limits = {.depth = 4, .n_nodes = 128};
    memset(r, 0, sizeof(*r));
    enum status st = json_parse(line, limits, &doc, e);
    if (st != OK)
        return err_set(e, ERR_FORMAT, "no JSON");
    st = read_object(json_root(doc), r, c, e);
    json_free(doc);
    return st;
}
