/* The table of refusals; see errors.h. */
#include "server/errors.h"

#include "base/json.h"

static const struct problem problems[] = {
#define X(id, http, type, code, retry) {id, http, type, code, retry},
#include "server/errors.def"
#undef X
};

enum { N_PROBLEMS = sizeof(problems) / sizeof(problems[0]) };

const struct problem *problem_at(size_t i)
{
    return i < N_PROBLEMS ? &problems[i] : NULL;
}

const struct problem *problem_find(int id)
{
    const struct problem *internal = &problems[0];
    for (size_t i = 0; i < N_PROBLEMS; i++) {
        if (problems[i].id == id)
            return &problems[i];
        if (problems[i].id == ERR_INTERNAL)
            internal = &problems[i];
    }
    return internal;
}

static void add_string_or_null(struct buf *out, const char *s)
{
    if (*s)
        json_add_string(out, str_of(s));
    else
        buf_add_c(out, "null");
}

void problem_add_json(struct buf *out, const struct problem *p, const struct err *e,
                      const char *extra)
{
    buf_add_c(out, "{\"error\":{\"message\":");
    json_add_string(out, str_of(e->text));
    buf_add_c(out, ",\"type\":");
    json_add_string(out, str_of(p->type));
    buf_add_c(out, ",\"param\":");
    add_string_or_null(out, e->param);
    buf_add_c(out, ",\"code\":");
    add_string_or_null(out, e->code[0] ? e->code : p->code);
    buf_add_c(out, extra);
    buf_add_c(out, "}}");
}
