/* Prints the API as Markdown, from the tables that the server itself works by: endpoints, request
 * fields, errors. The README's API part is this output. */
#include <stdio.h>

#include "base/buf.h"
#include "server/errors.h"
#include "server/fields.h"
#include "server/routes.h"

static void print_routes(void)
{
    puts("| endpoint | what it does | key needed |\n|---|---|---|");
    for (size_t i = 0; route_at(i); i++) {
        const struct route *r = route_at(i);
        printf("| `%s %s` | %s | %s |\n", method_label(r->method), r->path, r->doc,
               r->auth ? "yes" : "no");
    }
}

static void print_fields(const char *title, enum api api)
{
    struct buf out = {0};
    fields_add_docs(&out, api);
    printf("\n%s\n\n%s", title, out.ptr);
    buf_release(&out);
}

static void print_later(void)
{
    printf("\nKnown, not served yet (400 `unsupported_parameter`):");
    for (size_t i = 0; i < N_FIELDS; i++)
        if (fields[i].type == FIELD_TYPE_LATER)
            printf(" `%s`", fields[i].name);
    puts("");
}

static void print_errors(void)
{
    puts("\n| status | type | code |\n|---|---|---|");
    for (size_t i = 0; problem_at(i); i++) {
        const struct problem *p = problem_at(i);
        printf("| %d%s | %s | %s |\n", p->http, p->retry_after_s ? " + Retry-After" : "", p->type,
               p->code);
    }
}

int main(void)
{
    print_routes();
    print_fields("`POST /v1/chat/completions`", API_CHAT);
    print_fields("`POST /v1/completions`", API_COMPLETIONS);
    print_fields("`POST /tokenize`", API_TOKENIZE);
    print_fields("`POST /detokenize`", API_DETOKENIZE);
    print_later();
    print_errors();
    return 0;
}
