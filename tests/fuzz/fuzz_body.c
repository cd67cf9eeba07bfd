/* Fuzzer: request bodies through parsing, fields, conversations and the preparation of requests, with
 * a small tokenizer made from bytes. The first byte chooses the endpoint. Nothing may crash, and every
 * refusal must be a well-formed OpenAI error object. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/metrics.h"
#include "config/metrics.h"
#include "config/settings.h"
#include "engine/fake/fake.h"
#include "engine/model/gguf.h"
#include "engine/template/template.h"
#include "server/api/api.h"
#include "server/exchange.h"
#include "server/api/job.h"
#include "server/server.h"
#include "server/grammars.h"
#include "server/service.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- a GGUF file in memory: a byte-level vocabulary, one merge, two control tokens ---- */

static void put_u32(struct buf *b, uint32_t x)
{
    buf_add(b, &x, sizeof(x));
}

static void put_u64(struct buf *b, uint64_t x)
{
    buf_add(b, &x, sizeof(x));
}

static void put_str(struct buf *b, const char *s, size_t n)
{
    put_u64(b, n);
    buf_add(b, s, n);
}

static void put_key(struct buf *b, const char *key, uint32_t type)
{
    put_str(b, key, strlen(key));
    put_u32(b, type);
}

static void put_key_str(struct buf *b, const char *key, const char *value)
{
    put_key(b, key, 8);
    put_str(b, value, strlen(value));
}

static void put_key_u32(struct buf *b, const char *key, uint32_t value)
{
    put_key(b, key, 4);
    put_u32(b, value);
}

/* GPT-2's printable stand-ins for bytes. */
static void put_byte_token(struct buf *b, unsigned byte)
{
    static unsigned n_hidden;
    bool plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    unsigned c = plain ? byte : 256 + n_hidden++;
    char text[2] = {(char)c, 0};
    if (c < 128) {
        put_str(b, text, 1);
        return;
    }
    text[0] = (char)(0xC0 | c >> 6);
    text[1] = (char)(0x80 | (c & 0x3F));
    put_str(b, text, 2);
}

static void make_file(struct buf *b)
{
    enum { N_KEYS = 9, N_TOKENS = 259, ARRAY = 9, STRING = 8, INT32 = 5 };
    buf_add(b, "GGUF", 4);
    put_u32(b, 3);
    put_u64(b, 0);
    put_u64(b, N_KEYS);
    put_key_str(b, "general.architecture", "llama");
    put_key_str(b, "tokenizer.ggml.model", "gpt2");
    put_key_str(b, "tokenizer.ggml.pre", "gpt-2");
    put_key(b, "tokenizer.ggml.tokens", ARRAY);
    put_u32(b, STRING);
    put_u64(b, N_TOKENS);
    for (unsigned i = 0; i < 256; i++)
        put_byte_token(b, i);
    put_str(b, "ab", 2);
    put_str(b, "<|im_start|>", 12);
    put_str(b, "<|im_end|>", 10);
    put_key(b, "tokenizer.ggml.token_type", ARRAY);
    put_u32(b, INT32);
    put_u64(b, N_TOKENS);
    for (unsigned i = 0; i < N_TOKENS; i++)
        put_u32(b, i <= 256 ? 1 : 3);
    put_key(b, "tokenizer.ggml.merges", ARRAY);
    put_u32(b, STRING);
    put_u64(b, 1);
    put_str(b, "a b", 3);
    put_key_u32(b, "tokenizer.ggml.bos_token_id", 257);
    put_key_u32(b, "tokenizer.ggml.eos_token_id", 258);
    put_key_str(b, "tokenizer.chat_template",
                "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
                "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
    while (b->len % 32)
        buf_add_char(b, 0);
}

/* ---- a server without sockets ---- */

static struct settings set;
static struct server srv;
static char id[] = "m";
static char *ids[] = {id};
static struct service service = {.id = ids, .n_ids = 1};
static struct service *services[] = {&service};
static struct engine_info info;

static void must(enum status status, const struct err *e)
{
    if (!status)
        return;
    fprintf(stderr, "fuzz_body: %s\n", e->text);
    abort();
}

static void set_up(void)
{
    static struct buf file;
    static struct kv_arena arena = {.n_groups = 1, .group = {{.block_bytes = 64, .n_frames = 64}}};
    static const struct kv_layout layout = {.n_layers = 1, .n_groups = 1, .n_slots = 16};
    static struct gguf *g; /* the only reference: static, so that it counts as reachable */
    struct err e;
    struct tokenizer *tok;
    struct chat_template *tmpl;
    struct backend *be;
    struct sched *sched;
    struct str source;
    settings_init(&set);
    make_file(&file);
    must(gguf_open_memory((const uint8_t *)file.ptr, file.len, &g, &e), &e);
    must(tokenizer_new(g, STR_LIT(""), &tok, &e), &e);
    must(gguf_string(g, "tokenizer.chat_template", &source) ? OK : ERR_FORMAT, &e);
    must(template_new(source, &tmpl, &e), &e);
    const struct fake_options fake = {.n_vocab = tokenizer_n_vocab(tok)};
    const struct backend_limits rows = {.max_rows = 64, .max_spans = 32, .max_outs = 32};
    const struct sched_limits limits = {.max_running = 32,
                                        .max_queued = 4,
                                        .max_batch_tokens = 64,
                                        .chunk_max = 64,
                                        .step_target_ms = 100,
                                        .max_context = 512};
    must(fake_backend_new(&arena, &layout, rows, &fake, &be, &e), &e);
    const struct sched_memory memory = {.layout = &layout,
                                        .arena = &arena,
                                        .prefix = true,
                                        .domain = {.rope = "", .adapter = "", .salt = ""}};
    must(sched_new(&limits, be, &memory, tok, NULL, &sched, &e), &e);
    info.sampling_temperature = info.sampling_top_p = info.sampling_min_p = __builtin_nanf("");
    srv.set = &set;
    auth_init(&srv.auth, NULL);
    must(auth_load(&srv.auth, &set, &e), &e);
    srv.version = "0";
    srv.service = services;
    srv.n_services = 1;
    service.set = &set;
    service.info = &info;
    service.tok = tok;
    service.tmpl = tmpl;
    service.sched = sched;
    service.grammars = grammars_new(tok);
    service.max_context = 512;
    service.n_vocab = fake.n_vocab;
}

static void expect_error_object(const struct reply *reply)
{
    const struct json_limits limits = {.depth = 8, .n_nodes = 64};
    struct json_doc *doc;
    struct err e;
    must(json_parse(buf_str(&reply->body), limits, &doc, &e), &e);
    if (!json_is(json_get(json_get(json_root(doc), "error"), "message"), JSON_STRING))
        abort();
    json_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const handler[])(struct exchange *) = {api_chat, api_completions, api_tokenize,
                                                         api_detokenize};
    struct exchange ex = {.srv = &srv, .service = &service};
    if (!srv.service)
        set_up();
    if (size == 0)
        return 0;
    if (!auth_check(&srv.auth, (struct str){0}, (struct str){0}, &ex.grant))
        abort();
    buf_add(&ex.body, data + 1, size - 1);
    handler[data[0] % 4](&ex);
    if (ex.reply.set == (ex.job != NULL))
        abort();
    if (ex.reply.set && ex.reply.http >= 400)
        expect_error_object(&ex.reply);
    job_free(ex.job);
    exchange_release(&ex);
    return 0;
}
