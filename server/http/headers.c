/* See headers.h. */
#include "server/http/headers.h"

#include <microhttpd.h>
#include <string.h>
#include <strings.h>

#include "server/http/loop.h"

struct str header_value(const struct conn *c, const char *name)
{
    struct str v = {0};
    if (MHD_lookup_connection_value_n(c->mhd, MHD_HEADER_KIND, name, strlen(name), &v.ptr,
                                      &v.len) != MHD_YES)
        return (struct str){0};
    if (!v.ptr)
        return str_of("");
    while (v.len && (v.ptr[v.len - 1] == ' ' || v.ptr[v.len - 1] == '\t'))
        v.len--;
    return v;
}

bool header_is(struct str value, const char *want)
{
    return value.ptr && value.len == strlen(want) && strncasecmp(value.ptr, want, value.len) == 0;
}

struct body_framing header_framing(const struct conn *c)
{
    struct body_framing f = {0};
    struct str length = header_value(c, MHD_HTTP_HEADER_CONTENT_LENGTH);
    f.sized = length.ptr != NULL;
    for (size_t i = 0; i < length.len; i++)
        f.length = f.length * 10 + (uint64_t)(length.ptr[i] - '0');
    f.chunked = header_value(c, MHD_HTTP_HEADER_TRANSFER_ENCODING).ptr != NULL;
    f.expects_continue = header_value(c, MHD_HTTP_HEADER_EXPECT).ptr != NULL;
    return f;
}
