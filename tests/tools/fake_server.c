/* The HTTP front end and scheduler over the fake backend, with a real tokenizer: a server whose engine
 * has any speed and fails on demand, for tests from the point of view of HTTP clients.
 *
 * fake_server MODEL.gguf [--step-ms N] [--fail-after STEPS] [--fail-count STEPS] [--kv-blocks N]
 *             [options of millrace serve]
 * Prints "url http://HOST:PORT" once it is ready. SIGTERM drains, a second one exits at once. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/ledger.h"
#include "config/metrics.h"
#include "config/settings.h"
#include "engine/fake/fake.h"
#include "engine/model/gguf.h"
#include "engine/template/template.h"
#include "scheduler/tenant.h"
#include "server/budget.h"
#include "server/front.h"
#include "server/grammars.h"
#include "server/service.h"

extern char **environ;

/* The fake backend behind a brake and a fault. */
struct slow_backend {
    struct backend be; /* first: struct backend * is cast back */
    struct backend *inner;
    long step_ms;
    long n_until_failure, n_failures; /* counted down */
};

static enum status slow_submit(struct backend *be, struct batch *b, uint64_t *ticket, struct err *e)
{
    struct slow_backend *s = (struct slow_backend *)be;
    struct timespec pause = {s->step_ms / 1000, s->step_ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
    return s->inner->ops->submit(s->inner, b, ticket, e);
}

static enum status slow_collect(struct backend *be, uint64_t ticket, struct batch **b,
                                struct err *e)
{
    struct slow_backend *s = (struct slow_backend *)be;
    enum status status = s->inner->ops->collect(s->inner, ticket, b, e);
    if (status || --s->n_until_failure > 0 || s->n_failures <= 0)
        return status;
    s->n_failures--;
    return err_set(e, ERR_INTERNAL, "the fake engine fails as it was told");
}

static enum status slow_copy(struct backend *be, uint32_t group, uint32_t src, uint32_t dst,
                             struct err *e)
{
    struct slow_backend *s = (struct slow_backend *)be;
    return s->inner->ops->copy_block(s->inner, group, src, dst, e);
}

static void slow_close(struct backend *be)
{
    struct slow_backend *s = (struct slow_backend *)be;
    s->inner->ops->close(s->inner);
}

static const struct backend_ops slow_ops = {slow_submit, slow_collect, slow_copy, slow_close};

static long take_option(int *argc, char **argv, const char *name, long value)
{
    for (int i = 0; i + 1 < *argc; i++) {
        if (strcmp(argv[i], name) != 0)
            continue;
        value = atol(argv[i + 1]);
        memmove(&argv[i], &argv[i + 2], (size_t)(*argc - i - 2) * sizeof(*argv));
        *argc -= 2;
        break;
    }
    return value;
}

static void must(enum status status, const struct err *e)
{
    if (!status)
        return;
    fprintf(stderr, "fake_server: %s\n", e->text);
    exit(1);
}

static int signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

struct arguments {
    int argc;
    char **argv;
};

static void reload(struct server *srv, const struct arguments *args)
{
    struct settings set;
    struct err e = {0};
    bool help;
    settings_init(&set);
    if (settings_load(&set, args->argc, args->argv, environ, &help, &e) ||
        server_reload(srv, &set, &e))
        log_error("reload: %s", e.text);
    else
        log_info("reload: done");
    settings_release(&set);
}

/* Until a signal that ends the server: its number. */
static int wait_signal(int fd, struct server *srv, const struct arguments *args)
{
    struct signalfd_siginfo info;
    for (;;) {
        if (read(fd, &info, sizeof(info)) != sizeof(info))
            continue;
        if (info.ssi_signo != SIGHUP)
            return (int)info.ssi_signo;
        reload(srv, args);
    }
}

static void drain(struct server *srv, int fd, int signo)
{
    struct leaving leaving;
    server_leave(srv, signo == SIGINT, &leaving);
    while (!server_may_close(srv, &leaving)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 10) > 0)
            _exit(1);
    }
    server_drain(srv);
}

/* All that a server stands on, from the model file up. */
struct world {
    struct settings set;
    struct gguf *g;
    struct tokenizer *tok;
    struct chat_template *tmpl;
    struct kv_arena arena;
    struct kv_layout layout;
    uint32_t max_context;
    struct slow_backend slow;
    struct metrics *metrics;
    struct tenants *tenants;
    struct ledger *ledger;
    struct sched *sched;
    struct kv_named *prefixes;
    struct service service;
    struct server *srv;
};

static void open_model(struct world *w, const char *path)
{
    struct err e = {0};
    struct str source;
    must(gguf_open(path, &w->g, &e), &e);
    must(tokenizer_new(w->g, STR_LIT(""), &w->tok, &e), &e);
    bool has_template = gguf_string(w->g, "tokenizer.chat_template", &source);
    must(has_template ? template_new(source, &w->tmpl, &e) : ERR_FORMAT, &e);
    w->max_context = w->set.limits_max_context ? (uint32_t)w->set.limits_max_context : 8192;
}

static void make_backend(struct world *w, long n_blocks)
{
    struct err e = {0};
    const struct settings *set = &w->set;
    const struct backend_limits rows = {.max_rows = (uint32_t)set->sched_max_batch_tokens,
                                        .max_spans = (uint32_t)set->sched_max_running,
                                        .max_outs = (uint32_t)set->sched_max_batch_tokens};
    const struct fake_options fake = {.n_vocab = tokenizer_n_vocab(w->tok)};
    w->arena = (struct kv_arena){.n_groups = 1,
                                 .group = {{.block_bytes = 64, .n_frames = (uint32_t)n_blocks}}};
    w->layout = (struct kv_layout){.n_layers = 1, .n_groups = 1, .n_slots = 16};
    must(fake_backend_new(&w->arena, &w->layout, rows, &fake, &w->slow.inner, &e), &e);
    w->slow.be.limits = rows;
    w->slow.be.n_vocab = fake.n_vocab;
    w->slow.be.layout = w->layout;
    w->slow.be.kv = w->slow.inner->kv;
}

static void start_scheduler(struct world *w)
{
    struct err e = {0};
    const struct settings *set = &w->set;
    w->metrics = metrics_new(metrics_table, metrics_table_n);
    metrics_set_const_labels(w->metrics, "model_name=\"fake\",engine=\"0\"");
    w->tenants =
        tenants_new((uint64_t)set->sched_age * NS_PER_MS, w->slow.be.limits.max_spans,
                    (uint32_t)set->sched_spare_running, (uint64_t)set->sched_max_queued_tokens);
    const struct sched_limits limits = {
        .max_running = (uint32_t)set->sched_max_running,
        .max_queued = (uint32_t)set->sched_max_queued,
        .max_batch_tokens = (uint32_t)set->sched_max_batch_tokens,
        .chunk_max = (uint32_t)set->sched_chunk_max,
        .step_target_ms = (uint32_t)set->sched_step_target_ms,
        .max_context = w->max_context,
        .journal_bytes = set->sched_journal,
        .tenants = w->tenants,
    };
    const struct sched_memory memory = {.layout = &w->layout,
                                        .arena = &w->arena,
                                        .prefix = set->prefix_enabled,
                                        .secret = {1, 2},
                                        .domain = {.rope = "", .adapter = "", .salt = ""}};
    must(sched_new(&limits, &w->slow.be, &memory, w->tok, w->metrics, &w->sched, &e), &e);
    must(sched_start(w->sched, &e), &e);
}

static void listen_and_serve(struct world *w, const struct engine_info *info)
{
    struct err e = {0};
    static char alias[] = "m";
    static char *aliases[] = {alias};
    bool named = w->set.model_alias.n > 0;
    must(kv_named_open(&(struct kv_named_options){.path = ""}, &w->prefixes, &e), &e);
    w->service = (struct service){.set = &w->set,
                                  .id = named ? w->set.model_alias.item : aliases,
                                  .n_ids = named ? w->set.model_alias.n : 1,
                                  .info = info,
                                  .tok = w->tok,
                                  .tmpl = w->tmpl,
                                  .sched = w->sched,
                                  .named = w->prefixes,
                                  .grammars = grammars_new(w->tok),
                                  .max_context = w->max_context,
                                  .n_vocab = w->slow.be.n_vocab,
                                  .created = clock_unix_s()};
    w->ledger = ledger_new(ledger_kinds, N_LEDGER_KINDS, TENANT_MAX);
    ledger_set_total(w->ledger, budget_bytes(&w->set, kv_free_bytes(), 0));
    must(server_new(&w->set, "0.0.0", w->metrics, &w->service, w->tenants, w->ledger, &w->srv, &e),
         &e);
    must(server_listen(w->srv, &e), &e);
    server_set_ready(w->srv);
    printf("url http://%s:%u\n", w->set.host, w->srv->port);
    fflush(stdout);
}

/* Returns how many rows read KV that was not theirs. */
static uint64_t close_all(struct world *w)
{
    server_stop(w->srv);
    sched_stop(w->sched);
    uint64_t mismatches = fake_tag_mismatches(w->slow.inner);
    server_free(w->srv);
    kv_named_close(w->prefixes);
    sched_free(w->sched);
    grammars_free(w->service.grammars);
    tenants_free(w->tenants);
    ledger_free(w->ledger);
    slow_close(&w->slow.be);
    metrics_free(w->metrics);
    template_free(w->tmpl);
    tokenizer_free(w->tok);
    gguf_close(w->g);
    settings_release(&w->set);
    return mismatches;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w = {.slow = {.be = {.ops = &slow_ops}}};
    bool help = false;
    if (argc < 2)
        return 2;
    const char *path = argv[1];
    argc -= 2;
    argv += 2;
    w.slow.step_ms = take_option(&argc, argv, "--step-ms", 1);
    w.slow.n_until_failure = take_option(&argc, argv, "--fail-after", 0);
    w.slow.n_failures =
        take_option(&argc, argv, "--fail-count", w.slow.n_until_failure ? 1 << 30 : 0);
    long n_blocks = take_option(&argc, argv, "--kv-blocks", 4096);
    settings_init(&w.set);
    must(settings_load(&w.set, argc, argv, environ, &help, &e), &e);
    log_set_level((enum log_level)w.set.log_level);
    int signal_fd = signals();

    open_model(&w, path);
    make_backend(&w, n_blocks);
    start_scheduler(&w);
    const struct engine_info info = {.architecture = "fake",
                                     .n_vocab = w.slow.be.n_vocab,
                                     .n_ctx_train = w.max_context,
                                     .sampling_temperature = __builtin_nanf(""),
                                     .sampling_top_p = __builtin_nanf(""),
                                     .sampling_min_p = __builtin_nanf(""),
                                     .sampling_top_k = -1};
    listen_and_serve(&w, &info);

    int signo = wait_signal(signal_fd, w.srv, &(struct arguments){argc, argv});
    drain(w.srv, signal_fd, signo);
    uint64_t mismatches = close_all(&w);
    close(signal_fd);
    if (mismatches)
        fprintf(stderr, "fake_server: %llu KV mismatches\n", (unsigned long long)mismatches);
    return mismatches != 0;
}
