/* `millrace serve`. Thread: main. */
#ifndef SERVER_SERVE_H
#define SERVER_SERVE_H

#include <stdbool.h>

#include "base/status.h"
#include "config/settings.h"

/* Where the settings came from, so that SIGHUP can read them again; and the handler of SIGTERM and SIGINT
 * while all is being closed, which ends the process. */
struct serve_source {
    int argc;
    char **argv, **environ;
    void (*cut_short)(int number);
};

/* Serves until a signal. SIGHUP reads the key file and the limits.* options again (server_reload).
 * SIGTERM or SIGINT drains; another one cuts that short, and one while the model loads has nothing to wait
 * for: both leave threads running, so that the process should end without unwinding. Errors have one line of
 * text. */
enum serve_end { SERVE_ENDED, SERVE_LEFT_LOADING, SERVE_CUT_SHORT };

enum status serve_run(const struct settings *set, const struct serve_source *from,
                      const char *version, enum serve_end *end, struct err *e);

#endif
