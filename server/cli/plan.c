/* Memory needed, and what fits; see plan.h. Sizes come from the code that allocates: the backend's
 * scratch, the weights' layout, the arena. */
#include "server/cli/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/thread.h"
#include "config/models.h"
#include "config/settings.h"
#include "engine/engine.h"
#include "kvpool/arena.h"
#include "server/budget.h"
#include "kvpool/memory.h"
#include "server/cli/verb.h"

enum { MAX_USERS = 4096 };

struct plan {
    struct settings set;
    struct engine_needs needs;
    struct buf path;
    struct buf options; /* the server's options that were given, as they were given */
    bool json, help;
    uint64_t memory_bytes; /* of the machine that is planned for */
    bool other_machine; /* memory_bytes was given */
    uint32_t users, context;
    struct kv_plan kv;
    uint64_t kv_bytes, total_bytes; /* memory; the spill file is none */
    uint32_t users_fit, context_fits; /* users at this context; context for so many users */
};

/* ---- arguments ---- */

static const struct verb_option own_options[] = {
    {"users", "N", "sequences that run at the same time (default: sched.max_running)"},
    {"context", "L", "prompt and output tokens of each (default: the model's context)"},
    {"memory", "SIZE", "memory of the machine to plan for (default: what is free on this one)"},
    {"json", NULL, "print numbers as JSON"},
    {NULL, NULL, NULL},
};

struct own {
    const char *users, *context, *memory, *json; /* NULL: not given */
};

static enum status apply_own(struct plan *p, const struct own *own, struct err *e)
{
    enum status st = OK;
    struct settings sizes; /* a SIZE option reads --memory */
    p->json = own->json != NULL;
    if (own->users)
        st = settings_set(&p->set, "sched.max_running", own->users, e);
    if (!st && own->context)
        st = settings_set(&p->set, "limits.max_context", own->context, e);
    if (st || !own->memory)
        return st;
    settings_init(&sizes);
    st = settings_set(&sizes, "kv.bytes", own->memory, e);
    p->memory_bytes = sizes.kv_bytes;
    p->other_machine = true;
    settings_release(&sizes);
    return st;
}

static enum status read_args(struct plan *p, int argc, char **argv, char **environ, struct err *e)
{
    struct verb_args args;
    struct own own = {NULL, NULL, NULL, NULL};
    const char **value[] = {&own.users, &own.context, &own.memory, &own.json};
    verb_args_init(&args, argc, argv);
    p->help = verb_wants_help(&args);
    const char *model = verb_word(&args);
    enum status st = p->help ? OK : verb_take(&args, own_options, value, e);
    for (int i = 0; !st && !p->help && i < args.n; i++)
        buf_printf(&p->options, " %s", args.arg[i]);
    if (!st && !p->help)
        st = settings_load(&p->set, args.n, args.arg, environ, &p->help, e);
    if (!st && !p->help)
        st = apply_own(p, &own, e);
    if (!st && !p->help && !model && !*p->set.model)
        st = err_set(e, ERR_INVALID, "no model given: millrace plan PATH|NAME [options]");
    if (!st && !p->help)
        st = model_path_find(model ? model : p->set.model, &p->path, e);
    verb_args_release(&args);
    return st;
}

/* ---- sizes ---- */

static enum status size_kv(const struct plan *p, uint32_t users, uint32_t context,
                           struct kv_plan *kv, uint64_t *n_bytes, struct err *e)
{
    struct kv_plan_ask ask = kv_memory_ask(&p->set, UINT64_MAX, context);
    struct kv_arena arena;
    ask.max_running = users;
    ask.free_bytes = UINT64_MAX;
    enum status st = kv_plan_make(&ask, &p->needs.layout, kv, e);
    if (!st)
        st = kv_arena_plan(&arena, &p->needs.layout, kv->n_frames, kv->n_host, e);
    *n_bytes = st ? 0 : arena.n_bytes;
    return st;
}

static uint64_t fixed_bytes(const struct plan *p)
{
    return p->needs.info.device.weight_bytes + p->needs.info.device.scratch_bytes;
}

static bool fits(const struct plan *p, uint32_t users, uint32_t context)
{
    struct kv_plan kv;
    uint64_t n_bytes;
    return size_kv(p, users, context, &kv, &n_bytes, NULL) == OK &&
           n_bytes + fixed_bytes(p) <= p->memory_bytes;
}

/* Largest x in [0, most] that fits, as users or as context; what fits is a prefix. */
static uint32_t most_that_fit(const struct plan *p, bool users, uint32_t most)
{
    uint32_t low = 0, high = most;
    while (low < high) {
        uint32_t mid = low + (high - low + 1) / 2;
        if (fits(p, users ? mid : p->users, users ? p->context : mid))
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

static enum status size_all(struct plan *p, struct err *e)
{
    struct settings *set = &p->set;
    if (set->sched_max_running > set->sched_max_batch_tokens)
        set->sched_max_batch_tokens = set->sched_max_running; /* each running one has a row */
    const struct backend_limits rows = {
        .max_rows = (uint32_t)set->sched_max_batch_tokens,
        .max_spans = (uint32_t)set->sched_max_running,
        .max_outs = (uint32_t)set->sched_max_batch_tokens,
    };
    enum status st = engine_plan(p->path.ptr, set, rows, &p->needs, e);
    if (st)
        return st;
    uint32_t most = p->needs.info.n_ctx_train;
    if (set->limits_max_context > most)
        return err_set_field(e, ERR_INVALID, "context", NULL,
                             "a context of %" PRId64 " tokens is above the model's %u",
                             set->limits_max_context, most);
    p->users = (uint32_t)set->sched_max_running;
    p->context = set->limits_max_context ? (uint32_t)set->limits_max_context : most;
    st = size_kv(p, p->users, p->context, &p->kv, &p->kv_bytes, e);
    if (st)
        return st;
    p->total_bytes = fixed_bytes(p) + p->kv_bytes;
    if (!p->other_machine)
        p->memory_bytes = kv_free_bytes();
    p->users_fit = set->kv_bytes ? 0 : most_that_fit(p, true, MAX_USERS);
    p->context_fits = set->kv_bytes ? 0 : most_that_fit(p, false, most);
    return OK;
}

/* ---- words ---- */

static void print_size(const char *label, uint64_t n_bytes)
{
    printf("%s%s", label, size_shown(n_bytes).text);
}

static uint32_t chunk_of(const struct plan *p)
{
    return kv_memory_ask(&p->set, 0, p->context).chunk;
}

static uint64_t user_bytes(const struct plan *p, uint32_t g)
{
    const struct kv_layout *l = &p->needs.layout;
    return kv_blocks_held(l->n_slots, l->group[g].window, p->context, chunk_of(p)) *
           l->group[g].block_bytes;
}

static void print_group(const struct plan *p, uint32_t g)
{
    const struct kv_group *k = &p->needs.layout.group[g];
    char what[64] = "all tokens";
    if (k->window)
        snprintf(what, sizeof(what), "the last %u tokens", k->window);
    printf("    %2u layers    %s of %u heads of %u: ", k->n_layers, what, k->n_kv_heads,
           k->head_dim);
    print_size("", (uint64_t)k->bytes_per_token);
    print_size(" per token, ", user_bytes(p, g));
    printf(" per user, %u blocks\n", p->kv.n_frames[g]);
}

/* Of the arena, what is the RAM tier. */
static uint64_t host_bytes(const struct plan *p)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < p->needs.layout.n_groups; g++)
        n += p->kv.n_host[g] * p->needs.layout.group[g].block_bytes;
    return n;
}

static void print_needs(const struct plan *p)
{
    const struct engine_info *info = &p->needs.info;
    const struct kv_layout *l = &p->needs.layout;
    printf("%s: %s %s, %.0f M parameters, context of %u tokens\n\n", p->path.ptr,
           info->architecture, info->file_type, (double)info->n_params / 1e6, info->n_ctx_train);
    printf("for %u users at the same time, %u tokens each\n", p->users, p->context);
    printf("  %-12s %s\n", info->device.name, info->device.text);
    print_size("  weights      ", info->device.weight_bytes);
    print_size("\n  kv           ", p->kv_bytes - host_bytes(p));
    printf("   blocks of %u tokens, K %s, V %s\n", l->n_slots, kv_dtype_name(l->dtype_k),
           kv_dtype_name(l->dtype_v));
    for (uint32_t g = 0; g < l->n_groups; g++)
        print_group(p, g);
    if (p->set.kv_host_bytes) {
        print_size("  ram tier     ", host_bytes(p));
        puts("   kv.host_bytes");
    }
    print_size("  scratch      ", info->device.scratch_bytes);
    printf("   steps of up to %" PRId64 " tokens\n", p->set.sched_max_batch_tokens);
    print_size("  total        ", p->total_bytes);
    putchar('\n');
    if (p->set.kv_spill_bytes) {
        print_size("  spill file   ", p->set.kv_spill_bytes);
        puts("   on disk: kv.spill.bytes");
    }
}

/* What to start, and what lends a hand when it is too much. */
static void print_serve(const struct plan *p, bool enough)
{
    uint64_t frame_bytes = 0; /* the arena is these in whole huge pages */
    for (uint32_t g = 0; g < p->needs.layout.n_groups; g++)
        frame_bytes += p->kv.n_frames[g] * p->needs.layout.group[g].block_bytes;
    uint64_t room = p->memory_bytes > fixed_bytes(p) ? p->memory_bytes - fixed_bytes(p) : 0;
    printf("  serve        millrace serve %s%s --sched.max_running %u --limits.max_context %u",
           p->path.ptr, p->options.ptr ? p->options.ptr : "", p->users, p->context);
    if (p->set.sched_max_batch_tokens == p->users)
        printf(" --sched.max_batch_tokens %u", p->users);
    if (enough)
        printf(" --kv.bytes %s\n", size_option(frame_bytes, room).text);
    else if (room)
        printf(" --kv.bytes %s --kv.spill.path DIR --kv.spill.bytes %s (what does not fit is "
               "swapped)\n",
               size_option(room & ~(uint64_t)0xfffff, room).text,
               size_option(frame_bytes > room ? frame_bytes - room : 0, UINT64_MAX).text);
    else
        puts(" (the weights alone do not fit)");
}

static void print_fit(const struct plan *p)
{
    bool enough = p->total_bytes <= p->memory_bytes;
    if (p->other_machine)
        print_size("\na machine with ", p->memory_bytes);
    else
        print_size("\nthis machine: free ", p->memory_bytes);
    if (!p->other_machine)
        print_size(" of ", thread_memory_limit());
    printf("\n  fits         %s\n", enough ? "yes" : "no");
    if (!p->set.kv_bytes) {
        printf("  it holds     %u%s users of %u tokens", p->users_fit,
               p->users_fit == MAX_USERS ? " or more" : "", p->context);
        printf(", or %u users of %u tokens\n", p->users, p->context_fits);
    }
    print_size("  clients      ", budget_bytes(&p->set, p->memory_bytes, p->total_bytes));
    puts("   for bodies, prompts, answers, grammars and names (server.memory)");
    print_serve(p, enough);
}

/* ---- JSON ---- */

static void add_number(struct buf *out, const char *name, uint64_t value)
{
    buf_printf(out, ",\"%s\":%" PRIu64, name, value);
}

static void add_group(const struct plan *p, struct buf *out, uint32_t g)
{
    const struct kv_group *k = &p->needs.layout.group[g];
    buf_printf(out, "%s{\"window\":%u", g ? "," : "", k->window);
    add_number(out, "layers", k->n_layers);
    add_number(out, "kv_heads", k->n_kv_heads);
    add_number(out, "head_dim", k->head_dim);
    buf_add_c(out, ",\"bytes_per_token\":");
    json_add_double(out, k->bytes_per_token);
    add_number(out, "block_bytes", k->block_bytes);
    add_number(out, "bytes_per_user", user_bytes(p, g));
    add_number(out, "frames", p->kv.n_frames[g]);
    add_number(out, "host_blocks", p->kv.n_host[g]);
    add_number(out, "file_blocks", p->kv.n_file[g]);
    buf_add_char(out, '}');
}

static void print_json(const struct plan *p)
{
    struct buf out = {0};
    const struct engine_info *info = &p->needs.info;
    const struct kv_layout *l = &p->needs.layout;
    buf_add_c(&out, "{\"model\":");
    json_add_string(&out, str_of(p->path.ptr));
    buf_printf(&out, ",\"architecture\":\"%s\",\"file_type\":\"%s\"", info->architecture,
               info->file_type);
    add_number(&out, "parameters", info->n_params);
    add_number(&out, "model_context", info->n_ctx_train);
    buf_printf(&out, ",\"device\":\"%s\",\"device_level\":\"%s\"", info->device.name,
               info->device.level);
    add_number(&out, "users", p->users);
    add_number(&out, "context", p->context);
    add_number(&out, "block_tokens", l->n_slots);
    buf_printf(&out, ",\"dtype_k\":\"%s\",\"dtype_v\":\"%s\"", kv_dtype_name(l->dtype_k),
               kv_dtype_name(l->dtype_v));
    add_number(&out, "weights_bytes", info->device.weight_bytes);
    add_number(&out, "kv_bytes", p->kv_bytes);
    add_number(&out, "scratch_bytes", info->device.scratch_bytes);
    add_number(&out, "total_bytes", p->total_bytes);
    add_number(&out, "host_bytes", p->set.kv_host_bytes);
    add_number(&out, "spill_bytes", p->set.kv_spill_bytes);
    add_number(&out, "memory_bytes", p->memory_bytes);
    add_number(&out, "client_bytes", budget_bytes(&p->set, p->memory_bytes, p->total_bytes));
    buf_printf(&out, ",\"fits\":%s", p->total_bytes <= p->memory_bytes ? "true" : "false");
    if (!p->set.kv_bytes) {
        add_number(&out, "users_that_fit", p->users_fit);
        add_number(&out, "context_that_fits", p->context_fits);
    }
    buf_add_c(&out, ",\"groups\":[");
    for (uint32_t g = 0; g < l->n_groups; g++)
        add_group(p, &out, g);
    buf_add_c(&out, "]}");
    puts(out.ptr);
    buf_release(&out);
}

/* Not even with fewer users or a shorter context. */
static enum status check_any_fits(const struct plan *p, struct err *e)
{
    if (p->total_bytes <= p->memory_bytes || p->users_fit || p->context_fits)
        return OK;
    if (p->set.kv_bytes)
        return err_set(e, ERR_NO_MEMORY,
                       "nothing fits: weights, scratch and kv.bytes take %" PRIu64 " bytes of "
                       "%" PRIu64,
                       p->total_bytes, p->memory_bytes);
    return err_set(
        e, ERR_NO_MEMORY,
        "nothing fits: neither one user of %u tokens nor %u users of any length; weights "
        "and scratch alone take %" PRIu64 " bytes of %" PRIu64,
        p->context, p->users, fixed_bytes(p), p->memory_bytes);
}

enum status plan_run(int argc, char **argv, char **environ, struct err *e)
{
    struct plan p = {.json = false};
    settings_init(&p.set);
    enum status st = read_args(&p, argc, argv, environ, e);
    if (!st && p.help) {
        verb_print_help(
            "plan PATH|NAME [options]", PLAN_WHAT, own_options,
            "Every option of `millrace serve` is accepted too, for instance --kv.dtype q8.");
    } else if (!st) {
        st = size_all(&p, e);
        if (!st && p.json)
            print_json(&p);
        if (!st && !p.json) {
            print_needs(&p);
            print_fit(&p);
        }
        if (!st)
            st = check_any_fits(&p, e);
    }
    buf_release(&p.path);
    buf_release(&p.options);
    settings_release(&p.set);
    return st;
}
