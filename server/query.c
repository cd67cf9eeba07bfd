/* See query.h. */
#include "server/query.h"

#include <microhttpd.h>
#include <string.h>

#include "server/exchange.h"
#include "server/http/loop.h"

const char *query_find(const struct exchange *ex, const char *name)
{
    const char *value = NULL;
    size_t n = 0;
    if (MHD_lookup_connection_value_n(ex->conn->mhd, MHD_GET_ARGUMENT_KIND, name, strlen(name),
                                      &value, &n) != MHD_YES)
        return NULL;
    return value ? value : "";
}
