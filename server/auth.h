/* Which tenant a request comes from. The policy in force can be replaced at any time: what was let in keeps the
 * one it came with. Keys are compared in constant time. Thread: any. */
#ifndef SERVER_AUTH_H
#define SERVER_AUTH_H

#include "base/str.h"
#include "base/thread.h"
#include "server/policy.h"

/* A place in struct tenants: goes to another tenant only when nothing of the one before is left. */
struct auth_slot {
    char *id; /* owns [n_id]; NULL: never used */
    uint32_t n_id;
    uint32_t generation;
    atomic_uint uses; /* grants and requests */
};

struct auth {
    struct mutex lock;
    struct policy *now; /* a reference */
    uint32_t generation;
    struct tenants *tenants; /* borrows, or NULL */
    struct auth_slot slot[TENANT_MAX];
};

/* What a request was let in with. */
struct auth_grant {
    struct policy *policy; /* a reference; NULL: none */
    const struct policy_tenant *tenant; /* of it */
    atomic_uint *uses; /* of its slot */
    bool admin; /* may see what is others' */
};

void auth_init(struct auth *a, struct tenants *tenants);
void auth_release(struct auth *a);
/* First load and every reload: the policy of the settings takes effect at once and as a whole, or, on
 * an error, the old one stays. Errors of policy_load; ERR_BUSY when tenants of earlier policies take
 * all slots. */
enum status auth_load(struct auth *a, const struct settings *set, struct err *e);
bool auth_needs_key(struct auth *a);

/* authorization, x_api_key: header values; ptr NULL: not there. True: *g is filled, to be given back with auth_drop.
 * Without keys everyone is tenant "default". */
bool auth_check(struct auth *a, struct str authorization, struct str x_api_key,
                struct auth_grant *g);
void auth_drop(struct auth_grant *g);

#endif
