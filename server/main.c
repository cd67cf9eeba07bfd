/* The program: verbs and exit codes. 0 fine, 1 the work failed, 2 wrong usage. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "config/models.h"
#include "config/settings.h"
#include "engine/engine.h"
#include "server/cli/plan.h"
#include "server/serve.h"
#include "server/cli/simulate.h"

extern char **environ;

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

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
    if (settings_load(&set, argc, argv, environ, &help, &e)) {
        code = fail(&e, EXIT_USAGE);
    } else if (help) {
        fputs("usage: millrace serve --model PATH|NAME [options]\n\n", stdout);
        settings_print_help(stdout);
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

static int verb_inspect(int argc, char **argv)
{
    struct buf path = {0};
    struct err e = {0};
    if (argc != 1 || argv[0][0] == '-') {
        fputs("usage: millrace inspect PATH|NAME\n", stderr);
        return EXIT_USAGE;
    }
    enum status status = model_path_find(argv[0], &path, &e);
    if (!status)
        status = engine_inspect(path.ptr, stdout, &e);
    buf_release(&path);
    return status ? fail(&e, EXIT_FAILED) : 0;
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

static void print_usage(FILE *out);

static int verb_health(int argc, char **argv)
{
    struct settings set;
    struct err e = {0};
    const char *url = "", *path = "/health";
    bool help = false;
    while (argc > 0) {
        if (strcmp(argv[0], "--ready") == 0) {
            path = "/ready";
        } else if (strcmp(argv[0], "--url") == 0 && argc > 1) {
            url = argv[1];
            argc--;
            argv++;
        } else {
            break;
        }
        argc--;
        argv++;
    }
    settings_init(&set);
    enum status status = settings_load(&set, argc, argv, environ, &help, &e);
    if (!status && help)
        print_usage(stdout);
    else if (!status)
        status = serve_ask_health(&set, url, path, &e);
    settings_release(&set);
    return status ? fail(&e, EXIT_FAILED) : 0;
}

static int verb_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    puts("millrace " MILLRACE_VERSION);
    return 0;
}

static int verb_help(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    print_usage(stdout);
    return 0;
}

static const struct verb {
    const char *name;
    int (*run)(int argc, char **argv); /* what follows the verb */
    const char *args, *what; /* NULL: another spelling, not shown */
} verbs[] = {
    {"serve", verb_serve,
     "--model PATH|NAME [--host H] [--port N] [--config FILE] [--set key=value ...]",
     "serves a GGUF model over an OpenAI-compatible HTTP API"},
    {"inspect", verb_inspect, "PATH|NAME",
     "prints what a GGUF file holds, and what is missing or unsupported"},
    {"plan", verb_plan, "PATH|NAME [--users N] [--context L] [--memory SIZE] [--json]",
     "tells the memory that so many users need, and how many fit"},
    {"simulate", verb_simulate, "JOURNAL|ACCESS-LOG [--kv SIZE] [--rate X] [--json]",
     "runs a recorded load through the scheduler under other conditions"},
    {"health", verb_health, "[--ready] [--url http://HOST:PORT]",
     "asks a running server; exit code 0 when it is well"},
    {"--version", verb_version, NULL, NULL},
    {"version", verb_version, NULL, NULL},
    {"--help", verb_help, NULL, NULL},
    {"-h", verb_help, NULL, NULL},
    {"help", verb_help, NULL, NULL},
};

enum { N_VERBS = sizeof(verbs) / sizeof(verbs[0]) };

static void print_usage(FILE *out)
{
    fputs("usage: millrace VERB [options]\n\n", out);
    for (int i = 0; i < N_VERBS; i++)
        if (verbs[i].what)
            fprintf(out, "  %s %s\n      %s\n", verbs[i].name, verbs[i].args, verbs[i].what);
    fputs("  --version, --help\n\n`millrace serve --help` lists all options.\n", out);
}

static const char *nearest_verb(const char *given)
{
    int best = 0;
    for (int i = 1; i < N_VERBS; i++)
        if (edit_distance(given, verbs[i].name) < edit_distance(given, verbs[best].name))
            best = i;
    return verbs[best].name;
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
    for (int i = 0; i < N_VERBS; i++)
        if (strcmp(name, verbs[i].name) == 0)
            return verbs[i].run(argc - 2, argv + 2);
    print_usage(stderr);
    if (*name)
        fprintf(stderr, "\nmillrace: error: unknown verb \"%s\": did you mean \"%s\"?\n", name,
                nearest_verb(name));
    return EXIT_USAGE;
}
