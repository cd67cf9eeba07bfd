/* Query arguments of a request's target. Thread: the loop's, in handlers. */
#ifndef SERVER_QUERY_H
#define SERVER_QUERY_H

struct exchange;

/* Value of an argument, "" when it has none, NULL when it is not there. Borrows from the request. */
const char *query_find(const struct exchange *ex, const char *name);

#endif
