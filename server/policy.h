/* Which clients may use the server, and how much of it: keys, the tenants they belong to, limits of tenants and
 * routes. Made as a whole from the key file and the settings and never changed after that, so that a
 * reload is one pointer (server/auth.h). The words of both files are policy.def.
 * Thread: any (read-only after policy_load). */
#ifndef SERVER_POLICY_H
#define SERVER_POLICY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "config/settings.h"
#include "scheduler/tenant.h"

enum {
    POLICY_MAX_KEYS = 256,
    POLICY_MAX_KEY_BYTES = 512,
    POLICY_MAX_LINE_BYTES = 1024,
    POLICY_MAX_TENANTS = POLICY_MAX_KEYS + 1
};

enum policy_word {
#define X(word, where, type, min, max, doc) POLICY_##word,
#include "server/policy.def"
#undef X
    N_POLICY_WORDS
};

/* Bounds of one request, in tokens; UINT32_MAX: none. */
struct limits {
    uint32_t max_input, max_output, max_context;
};

struct policy_tenant {
    char name[TENANT_NAME_CAP];
    char *id; /* owns [n_id]: the same tenant has the same id in every policy; holds secrets */
    uint32_t n_id;
    int line; /* of the key file; 0: not from there */
    uint32_t n_keys; /* 0: no key has this tenant now */
    int64_t word[N_POLICY_WORDS];
    bool given[N_POLICY_WORDS];
    struct limits limits;
    uint32_t slot; /* in struct tenants; set by auth.c before another thread sees the policy */
};

struct policy_key {
    char *text; /* owns */
    size_t len;
    uint32_t tenant; /* index */
    bool admin; /* its word in the file; a key that is not there is one */
};

enum policy_route { ROUTE_CHAT, ROUTE_COMPLETIONS, N_POLICY_ROUTES };

struct policy {
    atomic_uint refs;
    struct policy_key *key; /* owns [n_keys]; none: everyone is tenant 0 */
    uint32_t n_keys;
    struct policy_tenant *tenant; /* owns [n_tenants]; 0 is "default" */
    uint32_t n_tenants;
    uint32_t n_live; /* tenants that someone can be */
    bool has_admin; /* a key of the file is: others see their own requests only */
    struct limits all, route[N_POLICY_ROUTES];
};

/* inline_key: "" or a key of tenant "default". path: "" or the key file: `KEY [name=NAME] [word=VALUE]...`
 * a line, blank lines and # comments skipped, as is a byte order mark. Lines of one name share a tenant, whose words stand on its
 * first line. Errors: ERR_IO; ERR_INVALID naming file, line and bound, never a key. A file without any
 * key is an error: it would leave the server open. */
enum status policy_load(const struct settings *set, struct policy **out, struct err *e);
void policy_ref(struct policy *p);
void policy_unref(struct policy *p); /* NULL is fine; the last one frees */

/* The tenant's row for struct tenants, generation left 0; weight 0 when no key has this tenant. */
void policy_config(const struct policy *p, uint32_t tenant, struct tenant_config *out);

uint32_t policy_weight(const struct policy_tenant *t);

/* The least of all limits, and for errors where each comes from. */
struct limits_in_force {
    struct limits is;
    const char *input_from, *output_from, *context_from; /* static texts */
};
/* model_context: what model and memory can hold. */
void policy_limits(const struct policy *p, const struct policy_tenant *t, enum policy_route route,
                   uint32_t model_context, struct limits_in_force *out);

#endif
