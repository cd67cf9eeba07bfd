/* One served model as one value: its names, engine, device, KV memory, scheduler, tokenizer and template.
 *
 * The server holds a table of services and looks a request's up by its `model` (service_find); a
 * handler reads it from its exchange. service_new (main thread: names and path) -> service_load (loader
 * thread) -> the facts below are read by any thread until service_free. */
#ifndef SERVER_SERVICE_H
#define SERVER_SERVICE_H

#include <stdint.h>

#include "base/ledger.h"
#include "base/metrics.h"
#include "base/status.h"
#include "base/str.h"
#include "config/settings.h"
#include "engine/engine.h"
#include "engine/text/text.h"
#include "kvpool/memory.h"
#include "kvpool/named.h"
#include "scheduler/scheduler.h"

struct grammars;

struct service {
    const struct settings *set; /* borrows */
    char *
        *id; /* owns [n_ids], n_ids >= 1: names that requests may use, the first is the main one */
    size_t n_ids;

    /* what handlers use, once loaded */
    const struct engine_info *info;
    const struct tokenizer *tok;
    const struct chat_template *tmpl; /* NULL: chat answers 400 */
    struct sched *sched; /* owns */
    struct kv_named *named;
    struct grammars *grammars; /* owns */
    uint64_t prefix_domain; /* kv_disk_domain, 0 without a disk prefix cache */
    uint64_t prefix_secret[2]; /* hides keys in the files of named prefixes */
    uint32_t max_context; /* prompt and output tokens of a request */
    uint32_t n_vocab;
    int64_t created; /* unix time shown by /v1/models */

    /* what they are made of */
    char *path; /* owns; the model file */
    struct engine *engine; /* owns */
    struct kv_memory kv; /* owns */
    struct backend *backend; /* owns */
};

/* Finds the model file and the names that it is served under. *out is set on an error too. */
enum status service_new(const struct settings *set, struct service **out, struct err *e);
/* Of list[n], the one that serves the model name of a request (NULL: none was given, the first), and in *id
 * (NULL is fine) the name that answers carry; NULL when none has the name. */
struct service *service_find(struct service *const *list, uint32_t n, const struct str *name,
                             const char **id);
/* Opens the model and starts its engine thread. tenants, ledger and metrics: shared, borrowed. */
enum status service_load(struct service *v, struct tenants *tenants, struct metrics *metrics,
                         struct err *e);
/* Constant series that describe the model and its memory. */
void service_describe(const struct service *v, const char *version, struct metrics *metrics);
/* Ends the engine thread and all copies of KV blocks; requests that still run end with an error. */
void service_stop(struct service *v);
void service_free(struct service *v); /* NULL is fine; after service_stop and server_free */

#endif
