/* One log line and the HTTP metrics of a request, when it is over. Never prompts or keys. */
#ifndef SERVER_HTTP_ACCESS_H
#define SERVER_HTTP_ACCESS_H

#include <stdint.h>

struct conn;
struct exchange;

void access_done(const struct exchange *ex);
/* Bytes that were refused before they were a request. */
void access_refused(const struct conn *c, const char *id, int http, const char *why);
/* Loop thread, about once a second: every 5 s a line with how far a prompt is that takes so long. */
void access_progress(struct exchange *ex, uint64_t now_ns);

#endif
