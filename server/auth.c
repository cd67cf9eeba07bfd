/* Keys and the policy in force; see auth.h. */
#include "server/auth.h"

#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"

void auth_init(struct auth *a, struct tenants *tenants)
{
    memset(a, 0, sizeof(*a));
    mutex_init(&a->lock);
    a->tenants = tenants;
}

void auth_release(struct auth *a)
{
    policy_unref(a->now);
    for (uint32_t i = 0; i < TENANT_MAX; i++)
        mem_free(a->slot[i].id);
    mutex_release(&a->lock);
    memset(a, 0, sizeof(*a));
}

/* ---- loading ---- */

static bool is_id(const struct auth_slot *s, const char *id, uint32_t n_id)
{
    return s->id && s->n_id == n_id && memcmp(s->id, id, n_id) == 0;
}

static bool names(const struct policy *p, const struct auth_slot *s)
{
    for (uint32_t i = 0; i < p->n_tenants; i++)
        if (is_id(s, p->tenant[i].id, p->tenant[i].n_id))
            return true;
    return false;
}

/* The slot that the tenant has, else one that is free; TENANT_MAX when there is none. */
static uint32_t slot_of(const struct auth *a, const struct policy *p, const struct policy_tenant *t,
                        const bool *taken)
{
    for (uint32_t i = 0; i < TENANT_MAX; i++)
        if (is_id(&a->slot[i], t->id, t->n_id))
            return i;
    for (uint32_t i = 0; i < TENANT_MAX; i++)
        if (!taken[i] && !atomic_load(&a->slot[i].uses) && !names(p, &a->slot[i]))
            return i;
    return TENANT_MAX;
}

static enum status place_tenants(struct auth *a, struct policy *p, struct err *e)
{
    bool taken[TENANT_MAX] = {0};
    for (uint32_t i = 0; i < p->n_tenants; i++) {
        uint32_t slot = slot_of(a, p, &p->tenant[i], taken);
        if (slot == TENANT_MAX)
            return err_set(
                e, ERR_BUSY,
                "no room for key \"%s\": requests of %d keys of earlier policies still run",
                p->tenant[i].name, TENANT_MAX);
        taken[slot] = true;
        p->tenant[i].slot = slot;
    }
    return OK;
}

/* Nothing fails from here on. */
static void take_slots(struct auth *a, const struct policy *p, struct tenant_set *set)
{
    for (uint32_t i = 0; i < p->n_tenants; i++) {
        const struct policy_tenant *t = &p->tenant[i];
        struct auth_slot *s = &a->slot[t->slot];
        if (!is_id(s, t->id, t->n_id)) {
            mem_free(s->id);
            s->id = mem_dup(t->id, t->n_id);
            s->n_id = t->n_id;
            s->generation = ++a->generation;
        }
        policy_config(p, i, &set->row[t->slot]);
        set->row[t->slot].generation = s->generation;
        if (t->slot >= set->n)
            set->n = t->slot + 1;
    }
}

enum status auth_load(struct auth *a, const struct settings *set, struct err *e)
{
    struct policy *p, *old = NULL;
    enum status st = policy_load(set, &p, e);
    if (st)
        return st;
    mutex_lock(&a->lock);
    st = place_tenants(a, p, e);
    if (!st) {
        struct tenant_set *rows = mem_zalloc(sizeof(*rows));
        take_slots(a, p, rows);
        if (a->tenants)
            tenants_publish(a->tenants, rows);
        else
            mem_free(rows);
        old = a->now;
        a->now = p;
    }
    mutex_unlock(&a->lock);
    policy_unref(st ? p : old);
    return st;
}

bool auth_needs_key(struct auth *a)
{
    mutex_lock(&a->lock);
    bool needs = a->now->n_keys > 0;
    mutex_unlock(&a->lock);
    return needs;
}

/* ---- checking ---- */

/* Time depends on the presented length only: no early exit, and bytes past the key's end compare
 * with a byte of the key again. */
static bool same(const struct policy_key *key, struct str given)
{
    size_t n = key->len;
    volatile unsigned char diff = n != given.len;
    for (size_t i = 0; i < given.len; i++)
        diff |= (unsigned char)(given.ptr[i] ^ key->text[n ? i % n : 0]);
    return diff == 0;
}

/* Index of the key + 1, 0 when it is none; looks at all of them. */
static uint32_t find(const struct policy *p, struct str given)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < p->n_keys; i++)
        found |= (0u - (uint32_t)same(&p->key[i], given)) & (i + 1);
    return found;
}

static uint32_t find_either(const struct policy *p, struct str authorization, struct str x_api_key)
{
    static const struct str scheme = {"Bearer ", 7};
    uint32_t found = 0, other = 0;
    if (authorization.len >= scheme.len &&
        strncasecmp(authorization.ptr, scheme.ptr, scheme.len) == 0) {
        size_t at = scheme.len;
        while (at < authorization.len && authorization.ptr[at] == ' ')
            at++;
        found = find(p, (struct str){authorization.ptr + at, authorization.len - at});
    }
    if (x_api_key.ptr)
        other = find(p, x_api_key);
    return found ? found : other;
}

/* Lets t of p in, unless another policy came into force meanwhile. */
static bool take_use(struct auth *a, const struct policy *p, const struct policy_tenant *t,
                     struct auth_grant *g)
{
    mutex_lock(&a->lock);
    bool current = a->now == p;
    if (current) {
        g->uses = &a->slot[t->slot].uses;
        atomic_fetch_add(g->uses, 1);
    }
    mutex_unlock(&a->lock);
    return current;
}

bool auth_check(struct auth *a, struct str authorization, struct str x_api_key,
                struct auth_grant *g)
{
    *g = (struct auth_grant){0};
    for (;;) {
        mutex_lock(&a->lock);
        struct policy *p = a->now;
        policy_ref(p);
        mutex_unlock(&a->lock);
        uint32_t found = find_either(p, authorization, x_api_key);
        const struct policy_tenant *t = &p->tenant[found ? p->key[found - 1].tenant : 0];
        bool known = found || !p->n_keys;
        if (known && take_use(a, p, t, g)) {
            g->policy = p;
            g->tenant = t;
            g->admin = !p->has_admin || p->key[found - 1].admin;
            return true;
        }
        policy_unref(p);
        if (!known)
            return false;
    }
}

void auth_drop(struct auth_grant *g)
{
    if (g->uses)
        atomic_fetch_sub(g->uses, 1);
    policy_unref(g->policy);
    *g = (struct auth_grant){0};
}
