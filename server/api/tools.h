/* The fields of a request about tools: what the model is shown of them, and what of its answer is a call.
 * Thread: any but a loop's: compiling takes milliseconds. */
#ifndef SERVER_API_TOOLS_H
#define SERVER_API_TOOLS_H

#include "base/buf.h"
#include "base/status.h"
#include "engine/text/text.h"
#include "server/api/fields.h"
#include "server/api/toolcall.h"

struct chat_template;
struct gram_owner;
struct grammar;
struct service;

/* Of one request; it outlives the request's body. Zero-initialised: no tools. */
struct tools {
    struct buf names; /* owns; of the tools that may be called, a NUL behind each */
    bool listens; /* calls are looked for in the answer */
    bool control_marks; /* and may begin with control tokens */
    bool opened; /* the prompt ends with the opener of a call */
    bool short_ids; /* the template wants ids of 9 letters and digits */
    enum toolcall_format format;
    const char *opener; /* that text, or "" */
};

/* Checks tools, tool_choice and parallel_tool_calls. *grammar: what forces a call (required, or a named tool),
 * in use; stays when none is forced. One that is there already is what else constrains the output.
 * Errors: ERR_INVALID and ERR_UNSUPPORTED with the JSON path in e->param; or errors of ledger_take. */
enum status tools_read(const struct service *service, const struct params *p,
                       const struct gram_owner *owner, struct tools *out, struct grammar **grammar,
                       struct err *e);
void tools_release(struct tools *t);
bool tools_knows(const struct tools *t, struct str name);

/* The tools that the template is given, NULL for none. */
const struct json *tools_shown(const struct params *p);
/* For a template that knows no tools: what the system message says of them. Nothing for others. */
void tools_add_preface(const struct chat_template *tmpl, const struct params *p, struct buf *out);
/* Appends the opener to the prompt of a forced call. */
enum status tools_open_prompt(const struct service *service, const struct tools *t,
                              struct tokens *prompt, struct err *e);

#endif
