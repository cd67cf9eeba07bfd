/* base/json on any bytes: parsing, walking, exact numbers, the same tree as cJSON's; and the writer's
 * output for a document reads back as the same document. */
#include <stdint.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tests/json_oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_DEPTH = 16 };

/* One look at a scalar through every accessor; strings and doubles survive writing. */
static void check_scalar(const struct json *v)
{
    struct buf out = {0};
    struct json_doc *doc;
    struct json_limits limits = {.depth = 1, .n_nodes = 1};
    int64_t i;
    uint64_t u;
    if (json_is(v, JSON_STRING)) {
        CHECK(utf8_valid(json_string(v)));
        json_add_string(&out, json_string(v));
        CHECK(json_parse(buf_str(&out), limits, &doc, NULL) == OK);
        CHECK(str_eq(json_string(json_root(doc)), json_string(v)));
        json_free(doc);
    } else if (json_is(v, JSON_NUMBER)) {
        bool has_i = json_i64(v, INT64_MIN, INT64_MAX, &i);
        bool has_u = json_u64(v, &u);
        CHECK(!has_i || !has_u || (i >= 0 && (uint64_t)i == u));
        CHECK(!has_i || (double)i == json_double(v));
        CHECK(!has_u || (double)u == json_double(v));
        json_add_double(&out, json_double(v));
        CHECK(json_parse(buf_str(&out), limits, &doc, NULL) == OK);
        CHECK(json_is(json_root(doc), JSON_NULL) || json_double(json_root(doc)) == json_double(v));
        json_free(doc);
    }
    buf_release(&out);
}

static size_t walk(const struct json *v)
{
    size_t n = 1, n_members = 0;
    check_scalar(v);
    for (const struct json *m = json_first(v); m; m = json_next(m)) {
        if (json_is(v, JSON_OBJECT))
            CHECK(utf8_valid(json_key(m)));
        CHECK(json_raw(m).ptr > json_raw(v).ptr &&
              json_raw(m).ptr + json_raw(m).len < json_raw(v).ptr + json_raw(v).len);
        n += walk(m);
        n_members++;
    }
    CHECK(n_members == json_count(v));
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_limits limits = {.depth = MAX_DEPTH, .n_nodes = 4096};
    struct json_doc *doc, *again;
    struct err e = {0};
    enum status st = json_parse((struct str){(const char *)data, size}, limits, &doc, &e);
    struct buf out = {0}, second = {0};
    json_add_string(&out, (struct str){(const char *)data, size});
    CHECK(utf8_valid(buf_str(&out)));
    buf_clear(&out);
    oracle_compare((struct str){(const char *)data, size}, doc, e.text);
    if (st != OK) {
        CHECK(doc == NULL && e.text[0] && utf8_valid(str_of(e.text)));
        buf_release(&out);
        return 0;
    }
    size_t n = walk(json_root(doc));
    json_add_value(&out, json_root(doc));
    CHECK(json_parse(buf_str(&out), limits, &again, &e) == OK);
    CHECK(walk(json_root(again)) == n);
    json_add_value(&second, json_root(again));
    CHECK(str_eq(buf_str(&out), buf_str(&second)));
    json_free(doc);
    json_free(again);
    buf_release(&out);
    buf_release(&second);
    return 0;
}
