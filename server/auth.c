/* API keys; see auth.h. */
#include "server/auth.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

static void add_key(struct auth *a, const char *p, size_t n)
{
    a->key = mem_realloc(a->key, mem_mul(a->n_keys + 1, sizeof(*a->key)));
    a->key[a->n_keys++] = mem_dup(p, n);
}

static char *trim(char *line)
{
    line += strspn(line, " \t");
    size_t n = strlen(line);
    while (n && strchr(" \t\r\n", line[n - 1]))
        line[--n] = 0;
    return line;
}

static enum status load_file(struct auth *a, const char *path, struct err *e)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return err_set(e, ERR_IO, "cannot read the key file \"%s\": %s", path, strerror(errno));
    char line[AUTH_MAX_KEY_BYTES + 2];
    enum status status = OK;
    size_t n_before = a->n_keys;
    for (int no = 1; !status && fgets(line, sizeof(line), f); no++) {
        if (strlen(line) > AUTH_MAX_KEY_BYTES) {
            status = err_set(e, ERR_INVALID, "key file \"%s\" line %d: longer than %d bytes", path,
                             no, AUTH_MAX_KEY_BYTES);
            break;
        }
        const char *key = trim(line);
        if (!*key || *key == '#')
            continue;
        if (a->n_keys == AUTH_MAX_KEYS)
            status =
                err_set(e, ERR_INVALID, "key file \"%s\": more than %d keys", path, AUTH_MAX_KEYS);
        else
            add_key(a, key, strlen(key));
    }
    fclose(f);
    if (!status && a->n_keys == n_before)
        status = err_set(e, ERR_INVALID, "key file \"%s\" holds no key", path);
    return status;
}

enum status auth_load(struct auth *a, const char *inline_key, const char *path, struct err *e)
{
    *a = (struct auth){0};
    if (*inline_key)
        add_key(a, inline_key, strlen(inline_key));
    return *path ? load_file(a, path, e) : OK;
}

void auth_release(struct auth *a)
{
    for (size_t i = 0; i < a->n_keys; i++)
        mem_free(a->key[i]);
    mem_free(a->key);
    *a = (struct auth){0};
}

/* Time depends on the presented length only: no early exit, and bytes past the key's end compare
 * with a byte of the key again. */
static bool same(const char *key, struct str given)
{
    size_t n = strlen(key);
    volatile unsigned char diff = n != given.len;
    for (size_t i = 0; i < given.len; i++)
        diff |= (unsigned char)(given.ptr[i] ^ key[n ? i % n : 0]);
    return diff == 0;
}

static bool any_key(const struct auth *a, struct str given)
{
    bool found = false;
    for (size_t i = 0; i < a->n_keys; i++)
        found |= same(a->key[i], given);
    return found;
}

bool auth_allows(const struct auth *a, const char *authorization, const char *x_api_key)
{
    if (a->n_keys == 0)
        return true;
    bool ok = false;
    if (authorization && strncasecmp(authorization, "Bearer ", 7) == 0) {
        const char *p = authorization + 7;
        ok |= any_key(a, str_of(p + strspn(p, " ")));
    }
    if (x_api_key)
        ok |= any_key(a, str_of(x_api_key));
    return ok;
}
