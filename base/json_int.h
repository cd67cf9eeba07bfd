/* Internals of base/json: the representation of a parsed value. Included by json*.c only. */
#ifndef BASE_JSON_INT_H
#define BASE_JSON_INT_H

#include <locale.h>

#include "base/json.h"

/* Values form one array in document order. The first member of a container directly follows it, and
 * each value stores the distance to its next sibling. */
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
    char *decoded; /* owns; decoded strings that had escapes; NULL if there are none */
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

locale_t json_locale(void); /* the C locale: numbers use a decimal point */

#endif
