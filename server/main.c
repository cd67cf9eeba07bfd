/* The program: verbs and exit codes. 0 fine, 1 the work failed, 2 wrong usage, or `inspect` of what
 * cannot be served. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "config/term.h"
#include "config/models.h"
#include "config/settings.h"
#include "engine/engine.h"
#include "server/cli/ask.h"
#include "server/cli/plan.h"
#include "server/cli/simulate.h"
#include "server/cli/verb.h"
#include "server/serve.h"

extern char **environ;

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_UNSERVABLE = 2 };

#define SERVE_WHAT "serves a GGUF model over an OpenAI-compatible HTTP API"
#define INSPECT_WHAT "prints what a GGUF file contains, and what is missing or unsupported"

static const struct verb_option no_options[] = {{NULL, NULL, NULL}};

static int fail(const struct err *e, int code)
{
    fprintf(stderr, "millrace: error: %s\n", e->text);
    return code;
}

/* A wrong option is usage; all else is the work's. */
static int finish(enum status status, const struct err *e)
{
    if (!status)
        return 0;
    return fail(e, status == ERR_INVALID ? EXIT_USAGE : EXIT_FAILED);
}

/* Nothing is served yet. As process 1 of a container a signal without a handler would be nothing. */
static void leave(int number)
{
    (void)number;
    _exit(0);
}

static void cut_short(int number)
{
    (void)number;
    _exit(EXIT_FAILED);
}

static int verb_serve(int argc, char **argv)
{
    struct settings set;
    struct err e = {0};
    bool help = false;
    enum serve_end end = SERVE_ENDED;
    int code = 0;
    signal(SIGTERM, leave);
    signal(SIGINT, leave);
    settings_init(&set);
    if (settings_load_model(&set, argc, argv, environ, &help, &e)) {
        code = fail(&e, EXIT_USAGE);
    } else if (help) {
        verb_print_help("serve MODEL [options]", SERVE_WHAT, no_options,
                        "MODEL, --model MODEL or -m MODEL: a GGUF file, or a known name such as "
                        "smollm2-135m.");
        putchar('\n');
        settings_print_help(stdout, term_width(stdout));
    } else if (serve_run(&set, &(struct serve_source){argc, argv, environ, cut_short},
                         MILLRACE_VERSION, &end, &e)) {
        code = fail(&e, EXIT_FAILED);
    } else if (end) {
        /* Threads still run: nothing may be unwound under them. */
        _exit(end == SERVE_CUT_SHORT ? EXIT_FAILED : 0);
    }
    settings_release(&set);
    return code;
}

static int inspect_model(const char *model)
{
    struct buf path = {0};
    struct err e = {0};
    bool servable = false;
    enum status status = model_path_find(model, &path, &e);
    if (!status)
        status = engine_inspect(path.ptr, stdout, &servable, &e);
    buf_release(&path);
    if (status)
        return fail(&e, EXIT_FAILED);
    return servable ? 0 : EXIT_UNSERVABLE;
}

static int verb_inspect(int argc, char **argv)
{
    struct verb_args args;
    verb_args_init(&args, argc, argv);
    bool help = verb_wants_help(&args);
    const char *model = verb_word(&args);
    bool wrong = !model || args.n;
    verb_args_release(&args);
    if (help)
        verb_print_help(
            "inspect MODEL", INSPECT_WHAT, no_options,
            "Exit code: 0 it can be served, 1 it cannot be read, 2 it cannot be served.");
    else if (wrong)
        fputs("millrace: error: give one model: millrace inspect MODEL\n", stderr);
    return help ? 0 : wrong ? EXIT_USAGE : inspect_model(model);
}

static int verb_plan(int argc, char **argv)
{
    struct err e = {0};
    return finish(plan_run(argc, argv, environ, &e), &e);
}

static int verb_simulate(int argc, char **argv)
{
    struct err e = {0};
    return finish(simulate_run(argc, argv, &e), &e);
}

static int verb_health(int argc, char **argv)
{
    struct err e = {0};
    return ask_run(argc, argv, environ, &e) ? fail(&e, EXIT_FAILED) : 0;
}

static int verb_version(int argc, char **argv)
{
    struct verb_args args;
    verb_args_init(&args, argc, argv);
    if (verb_wants_help(&args))
        verb_print_help("version", "prints the version", no_options, "");
    else
        puts("millrace " MILLRACE_VERSION);
    verb_args_release(&args);
    return 0;
}

static int verb_help(int argc, char **argv);

static const struct verb {
    const char *name;
    int (*run)(int argc, char **argv); /* what follows the verb */
    const char *args, *what; /* NULL: another spelling, not shown */
} verbs[] = {
    {"serve", verb_serve, "MODEL [--host H] [--port N] [--config FILE] [--set key=value ...]",
     SERVE_WHAT},
    {"inspect", verb_inspect, "MODEL", INSPECT_WHAT},
    {"plan", verb_plan, "MODEL [--users N] [--context L] [--memory SIZE] [--json]", PLAN_WHAT},
    {"simulate", verb_simulate, "JOURNAL|ACCESS-LOG [--kv SIZE] [--rate X] [--json]",
     SIMULATE_WHAT},
    {"health", verb_health, "[--ready] [--url http://HOST:PORT]", HEALTH_WHAT},
    {"--version", verb_version, NULL, NULL},
    {"version", verb_version, NULL, NULL},
    {"--help", verb_help, NULL, NULL},
    {"-h", verb_help, NULL, NULL},
    {"help", verb_help, NULL, NULL},
};

enum { N_VERBS = sizeof(verbs) / sizeof(verbs[0]) };

static void print_usage(FILE *out)
{
    int width = term_width(out);
    fputs("usage: millrace VERB [options]\n\n", out);
    for (int i = 0; i < N_VERBS; i++) {
        if (!verbs[i].what)
            continue;
        fprintf(out, "  %s ", verbs[i].name);
        term_wrap(out, verbs[i].args, 3 + (int)strlen(verbs[i].name), 6, width);
        fprintf(out, "%6s", "");
        term_wrap(out, verbs[i].what, 6, 6, width);
    }
    fputs("  --version, --help\n\n", out);
    term_wrap(out,
              "`millrace VERB --help` explains a verb, `millrace serve --help` lists all options.",
              0, 0, width);
}

static const struct verb *find_verb(const char *name)
{
    for (int i = 0; i < N_VERBS; i++)
        if (strcmp(name, verbs[i].name) == 0)
            return &verbs[i];
    return NULL;
}

/* `help VERB` is `VERB --help`. */
static int verb_help(int argc, char **argv)
{
    const struct verb *verb = argc ? find_verb(argv[0]) : NULL;
    char *help[] = {(char[]){"--help"}};
    if (verb && verb->run != verb_help)
        return verb->run(1, help);
    print_usage(stdout);
    return 0;
}

/* The verb that was meant; NULL when none is near. */
static const char *nearest_verb(const char *given)
{
    static const char *const others[][2] = {{"run", "serve"},
                                            {"start", "serve"},
                                            {"launch", "serve"},
                                            {"show", "inspect"},
                                            {"info", "inspect"}};
    size_t least = edit_distance_of_slips(given) + 1;
    const char *best = NULL;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(given, others[i][0]) == 0)
            return others[i][1];
    for (int i = 0; i < N_VERBS; i++) {
        size_t n = edit_distance(given, verbs[i].name);
        if (n < least) {
            least = n;
            best = verbs[i].name;
        }
    }
    return best;
}

/* Without them the next files to be opened would take their place: log lines would go to clients. */
static void open_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            _exit(EXIT_FAILED);
}

/* Files are mapped while a model is read. */
static void on_bus_error(int number)
{
    static const char text[] =
        "millrace: error: a file became shorter, or its disk failed, while it was read\n";
    ssize_t told = write(STDERR_FILENO, text, sizeof(text) - 1);
    (void)number;
    (void)told;
    _exit(EXIT_FAILED);
}

int main(int argc, char **argv)
{
    open_standard_files();
    signal(SIGBUS, on_bus_error);
    const char *name = argc > 1 ? argv[1] : "";
    const struct verb *verb = find_verb(name);
    if (verb)
        return verb->run(argc - 2, argv + 2);
    print_usage(stderr);
    const char *nearest = nearest_verb(name);
    if (*name && nearest)
        fprintf(stderr, "\nmillrace: error: unknown verb \"%s\": did you mean \"%s\"?\n", name,
                nearest);
    else if (*name)
        fprintf(stderr, "\nmillrace: error: unknown verb \"%s\"\n", name);
    return EXIT_USAGE;
}
