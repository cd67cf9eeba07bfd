/* engine/text/template on any source: parses and renders it with one fixed conversation, checks what
 * the door promises about text and ranges. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/template/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char messages_text[] =
    "[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"h\\u00e9llo "
    "w\\u4f60rld <x> "
    "\\ud83d\\ude00\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":"
    "\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":[1,2.5,null,"
    "true],"
    "\"b\":{\"c\":\"d\"}}}}]},{\"role\":\"tool\",\"content\":\"42\"},{\"role\":\"user\","
    "\"content\":"
    "[{\"type\":\"text\",\"text\":\"part\"}]}]";
static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{"
    "\"type\":"
    "\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"enum\":[\"x\",\"y\"]}}}}}]";
static const char kwargs_text[] =
    "{\"s\":\"Hello, World\",\"n\":7,\"f\":2.5,\"l\":[3,1,2],\"d\":{\"b\":2,"
    "\"a\":1},\"big\":123456789012345678901234567890,\"nil\":null}";

static const struct json *parse(const char *text, struct json_doc **doc)
{
    struct json_limits limits = {.depth = 32, .n_nodes = 1000};
    CHECK(json_parse(str_of(text), limits, doc, NULL) == OK);
    return json_root(*doc);
}

static void render(const struct chat_template *t, const struct template_args *a)
{
    struct buf out = {0};
    struct text_range *ranges = NULL;
    size_t n = 0, last = 0;
    struct err e = {0};
    enum status status = template_render(t, a, &out, &ranges, &n, &e);
    CHECK(status == OK || (e.status == status && utf8_valid(str_of(e.text))));
    CHECK(utf8_valid(buf_str(&out)));
    for (size_t i = 0; i < n; i++) {
        CHECK(ranges[i].start < ranges[i].end && ranges[i].end <= out.len);
        CHECK(i == 0 || ranges[i].start > last);
        last = ranges[i].end;
    }
    mem_free(ranges);
    buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { N_DOCS = 3, MAX_SOURCE = 4096 };
    struct json_doc *docs[N_DOCS];
    struct chat_template *t = NULL;
    struct err e = {0};
    if (size > MAX_SOURCE)
        return 0;
    enum status status = template_new((struct str){(const char *)data, size}, &t, &e);
    if (status != OK) {
        CHECK(e.status == status && e.text[0] && utf8_valid(str_of(e.text)));
        return 0;
    }
    struct template_args a = {
        .messages = parse(messages_text, &docs[0]),
        .tools = parse(tools_text, &docs[1]),
        .kwargs = parse(kwargs_text, &docs[2]),
        .add_generation_prompt = true,
        .bos_token = STR_LIT("<s>"),
        .eos_token = STR_LIT("</s>"),
        .now_unix_s = 1753776000,
        .verbatim = true,
    };
    render(t, &a);
    a.verbatim = a.add_generation_prompt = false;
    a.continue_final_message = true;
    render(t, &a);
    for (int i = 0; i < N_DOCS; i++)
        json_free(docs[i]);
    template_free(t);
    return 0;
}
