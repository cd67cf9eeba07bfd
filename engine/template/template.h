/* Chat templates: messages in, prompt text out, with the byte ranges that the template itself wrote.
 * A template is read-only after template_new and may be rendered by any number of threads at once. */
#ifndef ENGINE_TEMPLATE_TEMPLATE_H
#define ENGINE_TEMPLATE_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"
#include "base/str.h"
#include "engine/text/text.h" /* struct text_range */

struct chat_template;
/* Parses; ERR_UNSUPPORTED or ERR_FORMAT names line and construct. */
enum status template_new(struct str source, struct chat_template **out, struct err *e);
void template_free(struct chat_template *t);
/* True when the text that it renders is the same whatever the user says, in each of some short
 * conversations that it does not fail on: an empty template, or one that leaves the messages out. */
bool template_ignores_messages(const struct chat_template *t);

struct template_args {
    const struct json
        *messages; /* array of objects, as the client sent them (parts joined before) */
    const struct json *tools; /* array or NULL */
    const struct json *kwargs; /* object or NULL: chat_template_kwargs, extra variables */
    bool add_generation_prompt;
    /* The text ends with the content of the last message. A blank one adds nothing: the text then ends
     * with what the template prints before a content. */
    bool continue_final_message;
    struct str bos_token, eos_token;
    int64_t now_unix_s; /* for strftime_now; UTC */
    /* Off, messages are prepared as transformers does (members that are null left out, reasoning
     * under all its names), role developer becomes system where the template doesn't know it, and a
     * string content becomes a text part where the template only reads parts. */
    bool verbatim;
    bool
        keep_null_content; /* a content that is null stays: some templates ask whether it is none */
};
/* Appends the prompt text and says which byte ranges the template itself wrote (*trusted: mem_free).
 * Errors: ERR_INVALID with the template's own raise_exception message, or a clear text with the line;
 * ERR_TOO_LARGE when output or steps pass the sandbox's bounds. */
enum status template_render(const struct chat_template *t, const struct template_args *a,
                            struct buf *out, struct text_range **trusted, size_t *n_trusted,
                            struct err *e);

#endif
