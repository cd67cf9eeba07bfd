/* One log line and the HTTP metrics of a request, when it is over. Never prompts or keys. */
#ifndef SERVER_HTTP_ACCESS_H
#define SERVER_HTTP_ACCESS_H

struct exchange;

void access_done(const struct exchange *ex);

#endif
