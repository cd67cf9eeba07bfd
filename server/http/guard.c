/* Framing checks; see guard.h. */
#include "server/http/guard.h"

#include <string.h>
#include <strings.h>

void guard_init(struct guard *g)
{
    *g = (struct guard){.length = UINT64_MAX};
}

/* RFC 9110 token characters. */
static bool token_char(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is(const char *name, size_t n, const char *want)
{
    return n == strlen(want) && strncasecmp(name, want, n) == 0;
}

static void read_length(struct guard *g, const char *value, size_t n)
{
    uint64_t x = 0;
    for (size_t i = 0; i < n; i++) {
        if (value[i] < '0' || value[i] > '9' || x > (UINT64_MAX - 9) / 10) {
            g->bad_length = true;
            return;
        }
        x = x * 10 + (uint64_t)(value[i] - '0');
    }
    g->bad_length |= n == 0;
    g->length = x;
}

/* Texts with their ends, and the entry that names them. */
static size_t entry_bytes(size_t n_name, size_t n_value)
{
    enum { ENTRY_BYTES = 64 };
    return n_name + n_value + 4 + ENTRY_BYTES;
}

void guard_argument(struct guard *g, size_t n_name, size_t n_value)
{
    g->n_bytes += entry_bytes(n_name, n_value);
}

void guard_header(struct guard *g, const char *name, size_t n_name, const char *value,
                  size_t n_value)
{
    g->bad_name |= n_name == 0;
    g->n_bytes += entry_bytes(n_name, n_value);
    if (is(name, n_name, "Cookie"))
        g->n_bytes += n_value; /* taken apart in a copy */
    for (size_t i = 0; i < n_name; i++)
        g->bad_name |= !token_char((unsigned char)name[i]);
    for (size_t i = 0; i < n_value; i++) {
        unsigned char c = (unsigned char)value[i];
        g->bad_name |= (c < 32 && c != '\t') || c == 127;
    }
    if (is(name, n_name, "Content-Length")) {
        g->n_length++;
        read_length(g, value, n_value);
    } else if (is(name, n_name, "Transfer-Encoding")) {
        g->n_encoding++;
        g->chunked = is(value, n_value, "chunked");
        g->other_encoding |= !g->chunked;
    } else if (is(name, n_name, "Host")) {
        g->n_host++;
    } else if (is(name, n_name, "Expect")) {
        g->expects_continue = is(value, n_value, "100-continue");
    }
}

enum status guard_check(const struct guard *g, const char *http_version, struct err *e)
{
    bool old = strcmp(http_version, "HTTP/1.1") != 0;
    if (g->bad_name)
        return err_set(e, ERR_INVALID, "a header holds a character that is not allowed there");
    if (g->n_length > 1)
        return err_set(e, ERR_INVALID, "%u Content-Length headers, at most 1 is allowed",
                       g->n_length);
    if (g->n_encoding > 1)
        return err_set(e, ERR_INVALID, "%u Transfer-Encoding headers, at most 1 is allowed",
                       g->n_encoding);
    if (g->n_length && g->n_encoding)
        return err_set(e, ERR_INVALID, "both Content-Length and Transfer-Encoding are given");
    if (g->bad_length)
        return err_set(e, ERR_INVALID, "Content-Length is not a decimal number");
    if (g->other_encoding)
        return err_set(e, ERR_INVALID, "Transfer-Encoding other than chunked is not supported");
    if (g->n_encoding && old)
        return err_set(e, ERR_INVALID, "Transfer-Encoding needs HTTP/1.1");
    if (g->n_host > 1 || (g->n_host == 0 && !old))
        return err_set(e, ERR_INVALID, "%u Host headers, exactly 1 is needed", g->n_host);
    return OK;
}
