/* Keys, tenants and limits; see policy.h. */
#include "server/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/nearest.h"
#include "base/text_file.h"

enum { MAX_FILE_BYTES = 1 << 20 };

enum where { K = 1, R = 2, B = K | R };
enum type { INT, BOOL };

static const struct word {
    const char *name;
    enum where where;
    enum type type;
    int64_t min, max;
} words[N_POLICY_WORDS] = {
#define X(word, where, type, min, max, doc) {#word, where, type, min, max},
#include "server/policy.def"
#undef X
};

static const char *const route_names[N_POLICY_ROUTES] = {"chat", "completions"};
static const struct limits no_limits = {UINT32_MAX, UINT32_MAX, UINT32_MAX};

/* ---- words ---- */

/* Cuts the next word off *line; NULL when there is none. */
static char *next_word(char **line)
{
    char *word = *line + strspn(*line, " \t");
    size_t n = strcspn(word, " \t");
    if (n == 0)
        return NULL;
    *line = word + n + (word[n] != 0);
    word[n] = 0;
    return word;
}

static enum status unknown_word(const char *word, enum where where, struct err *e)
{
    const char *best = "";
    size_t least = edit_distance_of_slips(word) + 1;
    if ((where & K) && edit_distance(word, "name") < least) {
        least = edit_distance(word, "name");
        best = "name";
    }
    for (size_t i = 0; i < N_POLICY_WORDS; i++) {
        size_t n = edit_distance(word, words[i].name);
        if ((words[i].where & where) && n < least) {
            least = n;
            best = words[i].name;
        }
    }
    if (!*best)
        return err_set(e, ERR_INVALID, "unknown word \"%.64s\"", word);
    return err_set(e, ERR_INVALID, "unknown word \"%.64s\": did you mean \"%s\"", word, best);
}

static enum status read_number(const struct word *w, const char *text, int64_t *out, struct err *e)
{
    const char *digits = text + (*text == '-');
    errno = 0;
    long long x = strtoll(text, NULL, 10);
    if (!*digits || digits[strspn(digits, "0123456789")] || errno || x < w->min || x > w->max)
        return err_set(e, ERR_INVALID, "%s must be a whole number from %lld to %lld, not \"%.32s\"",
                       w->name, (long long)w->min, (long long)w->max, text);
    *out = x;
    return OK;
}

static enum status read_value(const struct word *w, const char *text, int64_t *out, struct err *e)
{
    if (w->type == INT)
        return read_number(w, text, out, e);
    *out = strcmp(text, "true") == 0;
    if (*out || strcmp(text, "false") == 0)
        return OK;
    return err_set(e, ERR_INVALID, "%s must be true or false, not \"%.32s\"", w->name, text);
}

/* word=N into word[] and given[]. text is cut at its '='. */
static enum status read_word(char *text, enum where where, int64_t *word, bool *given,
                             struct err *e)
{
    char *value = strchr(text, '=');
    if (!value)
        return err_set(e, ERR_INVALID, /* the text may be a piece of a key: not repeated */
                       "a word of %zu bytes is not of the form word=value", strlen(text));
    *value++ = 0;
    for (size_t i = 0; i < N_POLICY_WORDS; i++) {
        if (!(words[i].where & where) || strcmp(words[i].name, text) != 0)
            continue;
        if (given[i])
            return err_set(e, ERR_INVALID, "%s is given twice", text);
        given[i] = true;
        return read_value(&words[i], value, &word[i], e);
    }
    return unknown_word(text, where, e);
}

static struct limits limits_of(const int64_t *word, const bool *given)
{
    struct limits l = no_limits;
    if (given[POLICY_max_input])
        l.max_input = (uint32_t)word[POLICY_max_input];
    if (given[POLICY_max_output])
        l.max_output = (uint32_t)word[POLICY_max_output];
    if (given[POLICY_max_context])
        l.max_context = (uint32_t)word[POLICY_max_context];
    return l;
}

/* ---- tenants and keys ---- */

static struct policy_tenant *find_tenant(struct policy *p, const char *id, size_t n_id)
{
    for (uint32_t i = 0; i < p->n_tenants; i++)
        if (p->tenant[i].n_id == n_id && memcmp(p->tenant[i].id, id, n_id) == 0)
            return &p->tenant[i];
    return NULL;
}

/* id: kind 'n' and the name, or kind 'k' and the key of a line without a name. */
static struct policy_tenant *add_tenant(struct policy *p, char kind, const char *text)
{
    struct buf id = {0};
    buf_add_char(&id, kind);
    buf_add_c(&id, text);
    struct policy_tenant *t = find_tenant(p, id.ptr, id.len);
    if (!t) {
        p->tenant = mem_realloc(p->tenant, mem_mul(p->n_tenants + 1, sizeof(*p->tenant)));
        t = &p->tenant[p->n_tenants++];
        *t = (struct policy_tenant){.n_id = (uint32_t)id.len, .limits = no_limits};
        t->id = buf_take(&id);
    }
    buf_release(&id);
    return t;
}

static enum status check_name(const char *name, struct err *e)
{
    size_t n = strlen(name);
    if (n == 0 || n >= TENANT_NAME_CAP)
        return err_set(e, ERR_INVALID, "name has %zu bytes, 1 to %d are allowed", n,
                       TENANT_NAME_CAP - 1);
    for (size_t i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", name[i]))
            return err_set(e, ERR_INVALID, "name has other bytes than letters, digits, _ . -");
    return OK;
}

/* What stands behind the key on a line. */
struct line_words {
    const char *name; /* NULL: none */
    int64_t word[N_POLICY_WORDS];
    bool given[N_POLICY_WORDS];
    bool any; /* beside the name */
};

static enum status read_words(char *text, struct line_words *w, struct err *e)
{
    enum status st = OK;
    char *word;
    while (!st && (word = next_word(&text))) {
        if (strncmp(word, "name=", 5) != 0) {
            w->any = true;
            st = read_word(word, K, w->word, w->given, e);
        } else if (w->name) {
            st = err_set(e, ERR_INVALID, "name is given twice");
        } else {
            w->name = word + 5;
            st = check_name(w->name, e);
        }
    }
    return st;
}

/* A key that no client can send would lock all clients out. Clients refuse to send other characters than
 * those of ASCII, or do not agree on their bytes. */
static enum status check_key(const char *key, struct err *e)
{
    if (strlen(key) > POLICY_MAX_KEY_BYTES)
        return err_set(e, ERR_INVALID, "the key is longer than %d bytes", POLICY_MAX_KEY_BYTES);
    for (const char *p = key; *p; p++)
        if (*p < ' ' || *p > '~')
            return err_set(e, ERR_INVALID,
                           "the key holds a character that is not ascii: no client can send it");
    return OK;
}

static void add_key(struct policy *p, const char *text, uint32_t tenant, bool admin)
{
    p->key = mem_realloc(p->key, mem_mul(p->n_keys + 1, sizeof(*p->key)));
    p->key[p->n_keys++] = (struct policy_key){
        .text = mem_strdup(text), .len = strlen(text), .tenant = tenant, .admin = admin};
}

/* The key's place; n_keys when it is new. */
static uint32_t find_key(const struct policy *p, const char *text)
{
    uint32_t i = 0;
    while (i < p->n_keys && strcmp(p->key[i].text, text) != 0)
        i++;
    return i;
}

/* The key of a line with its tenant. The file knows more of a key than the environment. */
static enum status place_key(struct policy *p, const char *key, const struct policy_tenant *t,
                             struct err *e)
{
    bool admin = t->word[POLICY_admin] != 0;
    uint32_t i = find_key(p, key), tenant = (uint32_t)(t - p->tenant);
    if (i < p->n_keys && p->tenant[p->key[i].tenant].line && p->key[i].tenant != tenant)
        return err_set(e, ERR_INVALID, "the key is on line %d with another name",
                       p->tenant[p->key[i].tenant].line);
    if (i == POLICY_MAX_KEYS)
        return err_set(e, ERR_INVALID, "more than %d keys", POLICY_MAX_KEYS);
    if (i == p->n_keys)
        add_key(p, key, tenant, admin);
    p->key[i].tenant = tenant;
    p->key[i].admin = admin;
    p->has_admin |= admin;
    return OK;
}

static enum status read_line(struct policy *p, char *line, int no, struct err *e)
{
    struct line_words w = {0};
    const char *key = next_word(&line);
    if (!key || *key == '#')
        return OK;
    enum status st = check_key(key, e);
    if (!st)
        st = read_words(line, &w, e);
    if (st)
        return st;
    struct policy_tenant *t = add_tenant(p, w.name ? 'n' : 'k', w.name ? w.name : key);
    if (t->line && w.any)
        return err_set(e, ERR_INVALID, "the words of this %s are on line %d",
                       w.name ? "name" : "key", t->line);
    if (!t->line) {
        t->line = no;
        if (w.name)
            snprintf(t->name, sizeof(t->name), "%s", w.name);
        else
            snprintf(t->name, sizeof(t->name), "line:%d", no);
        memcpy(t->word, w.word, sizeof(w.word));
        memcpy(t->given, w.given, sizeof(w.given));
        t->limits = limits_of(w.word, w.given);
    }
    return place_key(p, key, t, e);
}

static enum status load_file(struct policy *p, const char *path, struct err *e)
{
    struct buf text = {0};
    bool any = false;
    enum status st = text_file_read("key file", path, MAX_FILE_BYTES, &text, e);
    char *line = text.ptr;
    for (int no = 1; !st && line; no++) {
        char *end = strchr(line, '\n');
        if (end)
            *end = 0;
        const char *first = line + strspn(line, " \t");
        any |= *first && *first != '#';
        if (strlen(line) > POLICY_MAX_LINE_BYTES)
            st = err_set(e, ERR_INVALID, "longer than %d bytes", POLICY_MAX_LINE_BYTES);
        else
            st = read_line(p, line, no, e);
        if (st)
            err_prefix(e, "key file \"%s\" line %d", path, no);
        line = end ? end + 1 : NULL;
    }
    buf_release(&text);
    if (!st && !any)
        st = err_set(e, ERR_INVALID, "key file \"%s\" holds no key", path);
    return st;
}

/* ---- routes ---- */

static enum status read_route(struct policy *p, char *text, struct err *e)
{
    int64_t word[N_POLICY_WORDS] = {0};
    bool given[N_POLICY_WORDS] = {0};
    const char *name = next_word(&text);
    int i = 0;
    while (i < N_POLICY_ROUTES && (!name || strcmp(route_names[i], name) != 0))
        i++;
    if (i == N_POLICY_ROUTES)
        return err_set(e, ERR_INVALID,
                       "\"%.64s\" is not a route: the routes are chat and completions",
                       name ? name : "");
    if (memcmp(&p->route[i], &no_limits, sizeof(no_limits)) != 0)
        return err_set(e, ERR_INVALID, "%s is given twice", name);
    char *next;
    enum status st = OK;
    while (!st && (next = next_word(&text)))
        st = read_word(next, R, word, given, e);
    p->route[i] = limits_of(word, given);
    return st;
}

static enum status load_routes(struct policy *p, const struct settings *set, struct err *e)
{
    enum status st = OK;
    for (size_t i = 0; i < set->limits_route.n && !st; i++) {
        char *text = mem_strdup(set->limits_route.item[i]);
        st = read_route(p, text, e);
        mem_free(text);
        if (st)
            err_prefix(e, "option limits.route");
    }
    return st;
}

static uint32_t or_none(int64_t limit)
{
    return limit > 0 ? (uint32_t)limit : UINT32_MAX;
}

/* ---- the whole ---- */

static void count_keys(struct policy *p)
{
    for (uint32_t i = 0; i < p->n_keys; i++)
        p->tenant[p->key[i].tenant].n_keys++;
    for (uint32_t i = 0; i < p->n_tenants; i++)
        p->n_live += p->tenant[i].n_keys > 0;
}

enum status policy_load(const struct settings *set, struct policy **out, struct err *e)
{
    struct policy *p = mem_zalloc(sizeof(*p));
    atomic_init(&p->refs, 1);
    p->all = (struct limits){or_none(set->limits_max_input), or_none(set->limits_max_output),
                             or_none(set->limits_max_context)};
    for (int i = 0; i < N_POLICY_ROUTES; i++)
        p->route[i] = no_limits;
    struct policy_tenant *t = add_tenant(p, 'n', "default");
    snprintf(t->name, sizeof(t->name), "default");
    enum status st = OK;
    if (*set->api_key && (st = check_key(set->api_key, e)))
        err_prefix(e, "option api_key (environment: MILLRACE_API_KEY)");
    else if (*set->api_key)
        add_key(p, set->api_key, 0, true);
    if (!st && *set->api_key_file)
        st = load_file(p, set->api_key_file, e);
    if (!st)
        st = load_routes(p, set, e);
    count_keys(p);
    if (st)
        policy_unref(p);
    *out = st ? NULL : p;
    return st;
}

void policy_ref(struct policy *p)
{
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
}

void policy_unref(struct policy *p)
{
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < p->n_keys; i++)
        mem_free(p->key[i].text);
    for (uint32_t i = 0; i < p->n_tenants; i++)
        mem_free(p->tenant[i].id);
    mem_free(p->key);
    mem_free(p->tenant);
    mem_free(p);
}

/* Where there is one tenant only, no request is passed by a better priority. */
static int32_t best_priority(const struct policy *p, const struct policy_tenant *t)
{
    if (t->given[POLICY_priority])
        return (int32_t)t->word[POLICY_priority];
    return p->n_live > 1 ? 0 : -TENANT_PRIORITY_MAX;
}

uint32_t policy_weight(const struct policy_tenant *t)
{
    return t->given[POLICY_weight] ? (uint32_t)t->word[POLICY_weight] : 1;
}

void policy_config(const struct policy *p, uint32_t tenant, struct tenant_config *out)
{
    const struct policy_tenant *t = &p->tenant[tenant];
    *out = (struct tenant_config){
        .weight = policy_weight(t),
        .priority = best_priority(p, t),
        .max_running = (uint32_t)t->word[POLICY_max_running],
        .max_queued = (uint32_t)t->word[POLICY_max_queued],
        .max_queued_tokens = (uint64_t)t->word[POLICY_max_queued_tokens],
        .tokens_per_minute = (uint64_t)t->word[POLICY_tokens_per_minute],
    };
    if (p->n_keys && !t->n_keys)
        out->weight = 0;
    snprintf(out->name, sizeof(out->name), "%s", t->name);
}

static void lower(uint32_t *is, const char **from, uint32_t limit, const char *where)
{
    if (limit != UINT32_MAX && limit <= *is) { /* equal: the limit's name is more useful */
        *is = limit;
        *from = where;
    }
}

void policy_limits(const struct policy *p, const struct policy_tenant *t, enum policy_route route,
                   uint32_t model_context, struct limits_in_force *out)
{
    const struct {
        const struct limits *l;
        const char *input, *output, *context;
    } from[] = {
        {&p->all, "limits.max_input", "limits.max_output", "limits.max_context"},
        {&p->route[route], "max_input of the route", "max_output of the route",
         "max_context of the route"},
        {&t->limits, "max_input of the key", "max_output of the key", "max_context of the key"},
    };
    *out = (struct limits_in_force){
        .is = {UINT32_MAX, UINT32_MAX, model_context},
        .input_from = "",
        .output_from = "",
        .context_from = "the server's context",
    };
    for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
        lower(&out->is.max_input, &out->input_from, from[i].l->max_input, from[i].input);
        lower(&out->is.max_output, &out->output_from, from[i].l->max_output, from[i].output);
        lower(&out->is.max_context, &out->context_from, from[i].l->max_context, from[i].context);
    }
}
