/* `millrace serve` and `millrace health`. Thread: main. */
#ifndef SERVER_SERVE_H
#define SERVER_SERVE_H

#include <stdbool.h>

#include "base/status.h"
#include "config/settings.h"

/* Where the settings came from, so that SIGHUP can read them again. */
struct serve_source {
    int argc;
    char **argv, **environ;
};

/* Serves until a signal. SIGHUP reads the key file and the limits.* options again (server_reload).
 * SIGTERM or SIGINT drains; another one, or one while the model loads, sets *at_once: the process should
 * end without unwinding. Errors have one line of text. */
enum status serve_run(const struct settings *set, const struct serve_source *from,
                      const char *version, bool *at_once, struct err *e);

/* Asks a running server: GET path of url ("" : host and port of the settings). OK when it answers 200. */
enum status serve_ask_health(const struct settings *set, const char *url, const char *path,
                             struct err *e);

#endif
