/* API keys: read once at start, compared in constant time. Thread: any after auth_load. */
#ifndef SERVER_AUTH_H
#define SERVER_AUTH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "base/str.h"

enum { AUTH_MAX_KEYS = 256, AUTH_MAX_KEY_BYTES = 512 };

struct auth {
    char **key; /* owns */
    size_t n_keys;
};

/* inline_key: "" or one key; path: "" or a file with one key a line (blank lines and # comments
 * skipped). ERR_IO, or ERR_INVALID naming file, line and bound. A file without any key is an error:
 * it would leave the server open. */
enum status auth_load(struct auth *a, const char *inline_key, const char *path, struct err *e);
void auth_release(struct auth *a);

/* authorization, x_api_key: header values or NULL. True when no keys are set. */
bool auth_allows(const struct auth *a, const char *authorization, const char *x_api_key);

#endif
