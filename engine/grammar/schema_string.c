/* Strings: lengths, patterns, formats. */
#include <string.h>

#include "engine/grammar/regex.h"
#include "engine/grammar/schema_int.h"

/* Sound but not complete: every text that matches is valid (but 29 February, for instance, is never written).
 * Formats of JSON Schema that are not listed here are annotations. */
#define YEAR_DATE "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])" DATE_REST
#define DATE_REST                                                                                  \
    "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"     \
    "02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define TIME                                                                                       \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):["  \
    "0-5][0-9])"
#define LABEL "[a-zA-Z0-9](?:-?[a-zA-Z0-9]){0,30}" /* no two hyphens: none is an A-label */
#define HOST LABEL "(?:\\." LABEL "){0,3}"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define HEX4 "[0-9a-fA-F]{1,4}"
#define PATH "(?:/[a-zA-Z0-9._~!$&'()*+,;=:@-]{0,64}){0,16}"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", YEAR_DATE},
    {"time", TIME},
    {"date-time", YEAR_DATE "T" TIME},
    {"duration", "P(?:[0-9]{1,6}W|(?:[0-9]{1,6}D|[0-9]{1,6}M(?:[0-9]{1,6}D)?|[0-9]{1,6}Y(?:[0-9]{1,"
                 "6}M(?:[0-9]{1,6}D)?)?)"
                 "(?:T(?:[0-9]{1,6}S|[0-9]{1,6}M(?:[0-9]{1,6}S)?|[0-9]{1,6}H(?:[0-9]{1,6}M(?:[0-9]{"
                 "1,6}S)?)?))?)"},
    {"email", "[a-zA-Z0-9_+-]{1,20}(?:\\.[a-zA-Z0-9_+-]{1,20}){0,1}@" HOST},
    {"idn-email", "[a-zA-Z0-9_+-]{1,20}(?:\\.[a-zA-Z0-9_+-]{1,20}){0,1}@" HOST},
    {"hostname", HOST},
    {"idn-hostname", HOST},
    {"ipv4", OCTET "\\." OCTET "\\." OCTET "\\." OCTET},
    {"ipv6", "(?:" HEX4 ":){7}" HEX4},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"uri", "(?:https?|ftp)://" HOST "(?::[1-9][0-9]{0,3})?" PATH
            "(?:\\?[a-zA-Z0-9._~!$&'()*+,;=:@/?-]{0,200})?"},
    {"iri", "(?:https?|ftp)://" HOST "(?::[1-9][0-9]{0,3})?" PATH
            "(?:\\?[a-zA-Z0-9._~!$&'()*+,;=:@/?-]{0,200})?"},
    {"uri-reference", "(?:https?://" HOST ")?" PATH},
    {"iri-reference", "(?:https?://" HOST ")?" PATH},
    {"json-pointer", "(?:/[a-zA-Z0-9_.-]{0,64}){0,16}"},
    {"relative-json-pointer", "(?:0|[1-9][0-9]{0,2})(?:#|(?:/[a-zA-Z0-9_]{0,64}){0,16})"},
    {"regex", "[a-zA-Z0-9 _-]{0,64}"},
    {"uri-template", "(?:https?://" HOST ")?" PATH},
};

static const char *format_pattern(struct str name)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (str_eq_c(name, formats[i].name))
            return formats[i].pattern;
    return NULL;
}

static expr_id quoted(struct schema *s, expr_id inside)
{
    return expr_seq3(s->x, expr_text(s->x, "\""), inside, expr_text(s->x, "\""));
}

static expr_id by_pattern(struct schema *s, const struct conj *c, const struct json *pattern)
{
    struct err e = {.text = ""};
    if (!json_is(pattern, JSON_STRING))
        return schema_fail(s, ERR_INVALID, c->node[0], "pattern", "must be a string");
    expr_id id = regex_expr(s->x, json_string(pattern), REGEX_JSON, false, &e);
    if (!s->x->error.status)
        return quoted(s, id);
    return schema_place_error(s, pattern);
}

static expr_id by_length(struct schema *s, const struct conj *c, uint32_t min, uint32_t max)
{
    if (max < min)
        return schema_fail(s, ERR_INVALID, c->node[0], "maxLength", "is below minLength");
    expr_id any = regex_class(s->x, NULL, 0, true, REGEX_JSON);
    return quoted(s, expr_repeat(s->x, any, min, max));
}

expr_id schema_string(struct schema *s, const struct conj *c)
{
    uint32_t min = 0, max = EXPR_MANY;
    struct err e;
    const struct json *pattern = conj_one(s, c, "pattern"), *format = conj_one(s, c, "format");
    bool bounded = conj_count(s, c, "minLength", true, &min);
    bounded |= conj_count(s, c, "maxLength", false, &max);
    if (s->failed)
        return expr_never(s->x);
    const char *known = json_is(format, JSON_STRING) ? format_pattern(json_string(format)) : NULL;
    if (bounded && min == 0 && max == EXPR_MANY)
        bounded = false;
    if ((pattern != NULL) + (known != NULL) + bounded > 1)
        return schema_fail(s, ERR_UNSUPPORTED, c->node[0], pattern ? "pattern" : "format",
                           "only one of pattern, format and a length can be honoured");
    if (pattern)
        return by_pattern(s, c, pattern);
    if (known)
        return quoted(s, regex_expr(s->x, str_of(known), REGEX_PLAIN, true, &e));
    return bounded ? by_length(s, c, min, max) : schema_any_string(s);
}
