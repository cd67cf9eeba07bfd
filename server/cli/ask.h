/* `millrace health`: asks a running server whether it is well. Thread: main. */
#ifndef SERVER_CLI_ASK_H
#define SERVER_CLI_ASK_H

#include "base/status.h"

#define HEALTH_WHAT "checks a running server; exit code 0 when it is healthy"

/* argv: options; --help prints them. OK when the server answers 200. */
enum status ask_run(int argc, char **argv, char **environ, struct err *e);

#endif
