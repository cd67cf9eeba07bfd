/* `millrace simulate`: a recorded load replayed under other conditions, printed as a table or as JSON.
 * Thread: main. */
#ifndef SERVER_CLI_SIMULATE_H
#define SERVER_CLI_SIMULATE_H

#include "base/status.h"

#define SIMULATE_WHAT "replays a recorded load through the scheduler under other conditions"

/* argv: the file first, then options; --help prints them. */
enum status simulate_run(int argc, char **argv, struct err *e);

#endif
