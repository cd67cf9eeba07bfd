/* One log line and the HTTP metrics of a request, when it is over. Never prompts or keys. */
#ifndef SERVER_HTTP_ACCESS_H
#define SERVER_HTTP_ACCESS_H

struct conn;
struct exchange;

void access_done(const struct exchange *ex);
/* Bytes that were refused before they were a request. */
void access_refused(const struct conn *c, const char *id, int http, const char *why);

#endif
