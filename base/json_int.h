/* Inside of base/json: what a parsed value is. Included by json*.c only. */
#ifndef BASE_JSON_INT_H
#define BASE_JSON_INT_H

#include <locale.h>

#include "base/json.h"

/* Values lie in one array in document order. The first member of a container stands right behind
 * it, and each value knows the distance to its next sibling. */
struct json {
    enum json_type type;
    uint32_t n_members;
    uint32_t to_next; /* distance to the next sibling in the array; 0 = none */
    struct str raw; /* borrows from doc->text */
    struct str key; /* decoded; borrows from doc */
    struct str string; /* decoded; borrows from doc */
};

struct json_doc {
    char *text; /* owns; the source without BOM, NUL-terminated */
    char *decoded; /* owns; strings that had escapes; NULL while there are none */
    struct json *nodes; /* owns, n_nodes of them in document order */
    size_t n_nodes;
};

static inline bool json_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool json_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

locale_t json_locale(void); /* the C locale: numbers have points */

#endif
