/* cJSON as the oracle of base/json: texts that base/json accepts, cJSON accepts with the same tree; texts that
 * base/json refuses because of the grammar, cJSON refuses too.
 *
 * cJSON is the laxer of the two: it accepts "01", raw control characters and bytes that are not UTF-8.
 * Its strings end at U+0000 and it reads at most 63 bytes of a number: texts with longer ones are
 * not compared. */
#ifndef TESTS_JSON_ORACLE_H
#define TESTS_JSON_ORACLE_H

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"

enum { ORACLE_NUMBER_MAX = 60 };

static inline bool oracle_has_long_number(struct str text)
{
    size_t run = 0;
    for (size_t i = 0; i < text.len; i++) {
        run = text.ptr[i] && strchr("0123456789+-.eE", text.ptr[i]) ? run + 1 : 0;
        if (run > ORACLE_NUMBER_MAX)
            return true;
    }
    return false;
}

static inline bool oracle_equal_c(struct str ours, const char *theirs)
{
    size_t n = strnlen(ours.ptr, ours.len); /* up to its first U+0000 */
    return strlen(theirs) == n && memcmp(ours.ptr, theirs, n) == 0;
}

static inline bool oracle_equal(const struct json *v, const cJSON *t)
{
    switch (json_type(v)) {
    case JSON_NULL:
        return cJSON_IsNull(t);
    case JSON_FALSE:
        return cJSON_IsFalse(t);
    case JSON_TRUE:
        return cJSON_IsTrue(t);
    case JSON_NUMBER:
        return cJSON_IsNumber(t) && t->valuedouble == json_double(v);
    case JSON_STRING:
        return cJSON_IsString(t) && oracle_equal_c(json_string(v), t->valuestring);
    default:
        break;
    }
    if (json_is(v, JSON_OBJECT) ? !cJSON_IsObject(t) : !cJSON_IsArray(t))
        return false;
    const cJSON *child = t->child;
    for (const struct json *m = json_first(v); m; m = json_next(m), child = child->next) {
        if (!child || !oracle_equal(m, child) ||
            (json_is(v, JSON_OBJECT) && !oracle_equal_c(json_key(m), child->string)))
            return false;
    }
    return !child;
}

/* doc: what json_parse made of the text; NULL: it refused it with the words `why`. */
static inline void oracle_compare(struct str text, const struct json_doc *doc, const char *why)
{
    if (oracle_has_long_number(text))
        return;
    char *copy = malloc(text.len + 1);
    const char *end = NULL;
    CHECK(copy);
    if (text.len)
        memcpy(copy, text.ptr, text.len);
    copy[text.len] = 0;
    cJSON *tree = cJSON_ParseWithLengthOpts(copy, text.len + 1, &end, false);
    if (doc)
        CHECKF(tree && oracle_equal(json_root(doc), tree), "not as cJSON reads it: %s", copy);
    else if (strstr(why, "unexpected end") || strstr(why, "unexpected closing bracket"))
        CHECKF(!tree, "cJSON reads it: %s", copy);
    cJSON_Delete(tree);
    free(copy);
}

#endif
