/* Listening sockets, and which process holds a busy port. Thread: main. */
#ifndef SERVER_HTTP_LISTEN_H
#define SERVER_HTTP_LISTEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

struct settings;

/* Opens n sockets on host and port (0: any free one) that share the port; fd[n] owned by the caller.
 * The first bind is exclusive, so that a port another process listens on is never shared by accident.
 * ERR_IO names the address, which process holds a busy port when that is known, and how to choose another. */
enum status listen_open(const struct settings *set, int *fd, uint32_t n, uint16_t *port,
                        struct err *e);
/* Appends "process 123 (name)" for a TCP port that someone listens on; nothing when unknown. */
void listen_holder(uint16_t port, struct buf *out);
/* True for a socket bound to an address that only this machine can reach. */
bool listen_is_loopback(int fd);

#endif
