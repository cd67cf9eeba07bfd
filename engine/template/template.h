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
/* True when the rendered text does not depend on the user's messages, in a few short conversations
 * (those that the template fails on do not count): an empty template, or one that ignores messages. */
bool template_ignores_messages(const struct chat_template *t);
/* Does the source hold this text? Tells whether it knows tools, and how it writes calls of them. */
bool template_mentions(const struct chat_template *t, const char *text);

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
    /* When false, messages are prepared as transformers prepares them (null members left out, reasoning
     * under all its names), role developer becomes system where the template does not know it, and a
     * string content becomes a text part where the template reads only parts. */
    bool verbatim;
    bool
        keep_null_content; /* null contents are kept: some templates test whether content is none */
};
/* Appends the prompt text and returns the byte ranges that the template itself wrote (*trusted: mem_free).
 * Errors: ERR_INVALID with the template's own raise_exception message, or a text with the line;
 * ERR_TOO_LARGE when output or steps exceed the limits of the sandbox. */
enum status template_render(const struct chat_template *t, const struct template_args *a,
                            struct buf *out, struct text_range **trusted, size_t *n_trusted,
                            struct err *e);

#endif
