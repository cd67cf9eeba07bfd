/* What can be refused from a request's head alone. Thread: the loop's. */
#ifndef SERVER_HTTP_ADMIT_H
#define SERVER_HTTP_ADMIT_H

#include "server/exchange.h"
#include "server/http/headers.h"

/* Finds the route and the tenant. The first finding is the exchange's reply. */
void admit(struct exchange *ex, const char *url, const char *method, const struct body_framing *f);

#endif
