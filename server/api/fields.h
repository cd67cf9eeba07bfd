/* A request body -> struct params, or one precise 400. The table is fields.def. Thread: any. */
#ifndef SERVER_API_FIELDS_H
#define SERVER_API_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"

/* Letters of the apis column. */
enum api {
    API_CHAT = 'C',
    API_COMPLETIONS = 'P',
    API_TOKENIZE = 'T',
    API_DETOKENIZE = 'D',
    API_PREFIXES = 'N'
};

enum field_id {
#define X(id, apis, name, type, member, min, max, def, doc) FIELD_##id,
#include "server/api/fields.def"
#undef X
    N_FIELDS
};

enum field_type {
    FIELD_TYPE_BOOL,
    FIELD_TYPE_INT,
    FIELD_TYPE_CUT, /* an integer, of any size: max stands for larger ones */
    FIELD_TYPE_NUM,
    FIELD_TYPE_STR,
    FIELD_TYPE_SEED,
    FIELD_TYPE_JSON,
    FIELD_TYPE_OPTIONS,
    FIELD_TYPE_LATER,
    FIELD_TYPE_HARMLESS
};

struct field {
    const char *apis;
    const char *name;
    enum field_type type;
    size_t offset; /* in struct params */
    double min, max;
    const char *def;
    const char *doc;
};
extern const struct field fields[N_FIELDS];

struct params {
    bool given[N_FIELDS]; /* present and not null */

    struct str model; /* borrows from the body, as all below */
    const struct json *messages, *prompt, *content, *tokens;
    const struct json *stop, *stop_token_ids, *logit_bias, *kwargs, *tools, *tool_choice;
    const struct json *response_format, *stream_options, *structured_outputs, *json_schema, *regex,
        *grammar;
    const struct json *guided_json, *guided_regex, *guided_choice, *guided_grammar;
    int64_t max_tokens, max_completion_tokens, min_tokens, top_k, n, top_logprobs, n_logprobs;
    int64_t best_of, priority, deadline_ms;
    struct str cache_salt, prefix, overflow;
    const struct kv_named_prefix *named; /* what `prefix` names; see prefix.h */
    double temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
    uint64_t seed;
    bool stream, logprobs, echo, ignore_eos, include_stop, skip_special, parse_special;
    bool add_special, add_generation_prompt, continue_final;
    bool kv_reserve, parallel_tools;
    bool timings;
    bool include_usage, continuous_usage; /* from stream_options */
    int none; /* target of rows that store nothing */
};

/* Defaults that do not depend on the endpoint. Values whose default does are told by given[]. */
void params_init(struct params *p);
/* body: an object. Names of fields that no row knows are appended to ignored, joined by ", ", safe for
 * a header, at most IGNORED_MAX_BYTES. */
enum { IGNORED_MAX_BYTES = 512 };
enum status params_read(struct params *p, enum api api, const struct json *body,
                        struct buf *ignored, struct err *e);

#endif
