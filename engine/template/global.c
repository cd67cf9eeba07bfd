/* Global functions that a chat template may call: those of jinja2 and those that transformers adds.
 *
 * Called by the parser (lookup) and the interpreter. Thread: any. */
#include <string.h>
#include <time.h>

#include "engine/template/interp.h"

static struct tm_val g_range(struct tmpl *c, struct tm_val self, const struct tm_val *a,
                             const struct tm_args *raw)
{
    (void)self;
    (void)raw;
    int64_t start = 0, stop = tm_need_int(c, a[0], "range argument"), step = 1;
    if (a[1].type != TM_ABSENT) {
        start = stop;
        stop = tm_need_int(c, a[1], "range argument");
    }
    if (a[2].type != TM_ABSENT)
        step = tm_need_int(c, a[2], "range argument");
    if (step == 0)
        tm_fail(c, ERR_INVALID, "range step must not be zero");
    /* The distance as unsigned: it may pass int64. */
    uint64_t distance = 0, by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    if (step > 0 && stop > start)
        distance = (uint64_t)stop - (uint64_t)start;
    else if (step < 0 && stop < start)
        distance = (uint64_t)start - (uint64_t)stop;
    uint64_t n = distance ? (distance - 1) / by + 1 : 0;
    if (n > TM_MAX_RANGE)
        tm_fail(c, ERR_INVALID, "range of more than %d numbers", TM_MAX_RANGE);
    struct tm_range *r = tm_alloc(c, sizeof(*r));
    *r = (struct tm_range){start, stop, step, (uint32_t)n};
    return (struct tm_val){.type = TM_RANGE, .range = r};
}

static void add_pairs(struct tmpl *c, struct tm_dict *d, struct tm_val v)
{
    tm_need_defined(c, v);
    if (v.type == TM_DICT) {
        for (uint32_t i = 0; i < v.dict->n; i++)
            tm_dict_set(c, d, v.dict->e[i].key, v.dict->e[i].value);
        return;
    }
    const struct tm_list *l = tm_to_list(c, v);
    for (uint32_t i = 0; i < l->n; i++) {
        const struct tm_list *pair = tm_to_list(c, l->v[i]);
        if (pair->n != 2)
            tm_fail(c, ERR_INVALID, "dict needs pairs, not %u members", pair->n);
        tm_dict_set(c, d, pair->v[0], pair->v[1]);
    }
}

static struct tm_dict *make_dict(struct tmpl *c, const struct tm_args *raw)
{
    struct tm_dict *d = tm_dict_new(c);
    if (raw->n > 1)
        tm_fail(c, ERR_INVALID, "dict takes at most 1 argument, not %u", raw->n);
    if (raw->n)
        add_pairs(c, d, raw->v[0]);
    for (uint32_t i = 0; i < raw->n_kw; i++)
        tm_dict_set(c, d, tm_string(raw->kw[i].name), raw->kw[i].v);
    return d;
}

static struct tm_val g_dict(struct tmpl *c, struct tm_val self, const struct tm_val *a,
                            const struct tm_args *raw)
{
    (void)self;
    (void)a;
    return tm_dict_val(make_dict(c, raw));
}

static struct tm_val g_namespace(struct tmpl *c, struct tm_val self, const struct tm_val *a,
                                 const struct tm_args *raw)
{
    (void)self;
    (void)a;
    struct tm_dict *d = make_dict(c, raw);
    for (uint32_t i = 0; i < d->n; i++)
        if (d->e[i].key.type == TM_STR && d->e[i].key.s->len && d->e[i].key.s->p[0] == '_')
            tm_fail(c, ERR_INVALID, "namespace attribute starts with an underscore");
    return (struct tm_val){.type = TM_NAMESPACE, .dict = d};
}

static struct tm_val g_raise(struct tmpl *c, struct tm_val self, const struct tm_val *a,
                             const struct tm_args *raw)
{
    (void)self;
    (void)raw;
    tm_raise(c, tm_view_str(tm_to_str(c, a[0])));
}

/* One directive of strftime_now. Python expands %f, %z and %Z itself: the clock has no zone. */
static void add_time(struct tmpl *c, struct tm_sb *b, const char *directive)
{
    time_t now = (time_t)c->now_unix_s;
    struct tm parts;
    char text[128];
    if (strcmp(directive, "%f") == 0) {
        tm_sb_add_c(b, "000000");
        return;
    }
    if (strcmp(directive, "%z") == 0 || strcmp(directive, "%Z") == 0)
        return;
    if (!gmtime_r(&now, &parts))
        tm_fail(c, ERR_INVALID, "strftime_now: time out of range");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    tm_sb_add(b, text, strftime(text, sizeof(text), directive, &parts), false);
#pragma GCC diagnostic pop
}

static struct tm_val g_strftime_now(struct tmpl *c, struct tm_val self, const struct tm_val *a,
                                    const struct tm_args *raw)
{
    (void)self;
    (void)raw;
    const struct tm_str *f = tm_need_str(c, a[0], "strftime_now format");
    struct tm_sb b;
    tm_sb_init(&b, c);
    for (uint32_t at = 0; at < f->len; at++) {
        if (f->p[at] != '%' || at + 1 >= f->len || f->p[at + 1] < 0) {
            tm_sb_add_sub(&b, f, at, at + 1);
            continue;
        }
        char directive[4] = {'%', f->p[at + 1], 0, 0};
        at++;
        if (strchr("-_0^#EO", directive[1]) && at + 1 < f->len && f->p[at + 1] > 0)
            directive[2] = f->p[++at];
        add_time(c, &b, directive);
    }
    return tm_string(tm_sb_done(&b));
}

static struct tm_val g_unsupported(struct tmpl *c, struct tm_val self, const struct tm_val *a,
                                   const struct tm_args *raw)
{
    (void)self;
    (void)a;
    (void)raw;
    tm_fail(c, ERR_UNSUPPORTED, "functions lipsum, cycler and joiner are not supported");
}

static const struct tm_builtin globals[] = {
    {"range", "/start stop? step?", g_range},
    {"dict", NULL, g_dict},
    {"namespace", NULL, g_namespace},
    {"raise_exception", "message", g_raise},
    {"strftime_now", "format", g_strftime_now},
    {"lipsum", NULL, g_unsupported},
    {"cycler", NULL, g_unsupported},
    {"joiner", NULL, g_unsupported},
};

const struct tm_builtin *tm_global_find(struct str name)
{
    for (size_t i = 0; i < sizeof(globals) / sizeof(globals[0]); i++)
        if (str_eq_c(name, globals[i].name))
            return &globals[i];
    return NULL;
}
