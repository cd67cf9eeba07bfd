/* `millrace plan`: the memory that a model needs for so many users, before anything is bought.
 * Thread: main. */
#ifndef SERVER_CLI_PLAN_H
#define SERVER_CLI_PLAN_H

#include "base/status.h"

#define PLAN_WHAT "prints how much memory a number of users need, and how many fit"

/* argv: the model first, then options; --help prints them. */
enum status plan_run(int argc, char **argv, char **environ, struct err *e);

#endif
