/* What a ready server reports about itself: a few lines on stdout, or one JSON object with
 * log.format=json. Thread: main. */
#ifndef SERVER_CLI_BANNER_H
#define SERVER_CLI_BANNER_H

#include "server/server.h"
#include "server/service.h"

void banner_print(const struct server *srv, const struct service *v, const char *version,
                  bool needs_key);

#endif
