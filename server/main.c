/* The program: verbs and exit codes. 0 fine, 1 the work failed, 2 wrong usage. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/models.h"
#include "config/settings.h"
#include "engine/engine.h"
#include "server/serve.h"

extern char **environ;

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

static void print_usage(FILE *out)
{
    fputs("usage: millrace VERB [options]\n"
          "\n"
          "  serve --model PATH|NAME [--host H] [--port N] [--config FILE] [--set key=value ...]\n"
          "      serves a GGUF model over an OpenAI-compatible HTTP API\n"
          "  inspect PATH|NAME\n"
          "      prints what a GGUF file holds, and what is missing or unsupported\n"
          "  health [--ready] [--url http://HOST:PORT]\n"
          "      asks a running server; exit code 0 when it is well\n"
          "  --version, --help\n"
          "\n"
          "`millrace serve --help` lists all options.\n",
          out);
}

static int fail(const struct err *e, int code)
{
    fprintf(stderr, "millrace: error: %s\n", e->text);
    return code;
}

static int verb_serve(int argc, char **argv)
{
    struct settings set;
    struct err e = {0};
    bool help = false, at_once = false;
    int code = 0;
    settings_init(&set);
    if (settings_load(&set, argc, argv, environ, &help, &e)) {
        code = fail(&e, EXIT_USAGE);
    } else if (help) {
        fputs("usage: millrace serve --model PATH|NAME [options]\n\n", stdout);
        settings_print_help(stdout);
    } else if (serve_run(&set, &(struct serve_source){argc, argv, environ}, MILLRACE_VERSION,
                         &at_once, &e)) {
        code = fail(&e, EXIT_FAILED);
    } else if (at_once) {
        /* Threads still run: nothing may be unwound under them. */
        _exit(EXIT_FAILED);
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

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    if (strcmp(verb, "serve") == 0)
        return verb_serve(argc - 2, argv + 2);
    if (strcmp(verb, "inspect") == 0)
        return verb_inspect(argc - 2, argv + 2);
    if (strcmp(verb, "health") == 0)
        return verb_health(argc - 2, argv + 2);
    if (strcmp(verb, "--version") == 0 || strcmp(verb, "version") == 0) {
        puts("millrace " MILLRACE_VERSION);
        return 0;
    }
    bool help = strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0 || strcmp(verb, "help") == 0;
    print_usage(help ? stdout : stderr);
    if (*verb && !help)
        fprintf(stderr, "\nmillrace: error: unknown verb \"%s\"\n", verb);
    return help ? 0 : EXIT_USAGE;
}
