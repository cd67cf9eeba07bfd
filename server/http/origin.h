/* Which host a browser asks for, and from which page: which names this server goes by, and which web pages may use it.
 * Pure; thread: any. */
#ifndef SERVER_HTTP_ORIGIN_H
#define SERVER_HTTP_ORIGIN_H

#include <stdbool.h>

#include "base/status.h"
#include "base/str.h"
#include "config/settings.h"

/* ERR_INVALID for an item of server.cors_origin that no Origin header can equal. */
enum status origin_check_settings(const struct settings *set, struct err *e);

/* host: a valid value of Host. True for localhost, loopback addresses, the host option and the names of
 * server.allowed_hosts. A page whose own name was pointed to this machine (DNS rebinding) asks with its own. */
bool origin_host_is_ours(const struct settings *set, struct str host);

/* Of an Origin header: none, or the server's own; a page that server.cors_origin names; one that its *
 * lets in; any other. */
enum origin { ORIGIN_OWN, ORIGIN_NAMED, ORIGIN_BY_STAR, ORIGIN_FOREIGN };
enum origin origin_of(const struct settings *set, struct str origin, struct str host);

bool origin_star(const struct settings *set); /* server.cors_origin has a * */

#endif
