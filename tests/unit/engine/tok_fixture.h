/* Small vocabularies as GGUF bytes in memory, for the unit tests and the fuzzer of engine/text. */
#ifndef TESTS_UNIT_ENGINE_TOK_FIXTURE_H
#define TESTS_UNIT_ENGINE_TOK_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/model/gguf.h"
#include "engine/text/vocab.h"

struct fixture {
    struct buf values; /* key-value section */
    uint64_t n_values;
    struct buf tokens, types, scores, merges;
    uint32_t n_tokens, n_merges;
    struct buf file;
    struct gguf *g;
    struct tokenizer *t;
};

static inline void fx_put(struct buf *b, uint64_t v, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        buf_add_char(b, (char)(v >> (8 * i)));
}

static inline void fx_string(struct buf *b, struct str s)
{
    fx_put(b, s.len, 8);
    buf_add_str(b, s);
}

static inline void fx_key(struct fixture *f, const char *key, enum gguf_type type)
{
    char full[64];
    snprintf(full, sizeof full, "tokenizer.ggml.%s", key);
    fx_string(&f->values, str_of(full));
    fx_put(&f->values, type, 4);
    f->n_values++;
}

static inline void fx_u32(struct fixture *f, const char *key, uint32_t value)
{
    fx_key(f, key, GGUF_U32);
    fx_put(&f->values, value, 4);
}

static inline void fx_bool(struct fixture *f, const char *key, bool value)
{
    fx_key(f, key, GGUF_BOOL);
    fx_put(&f->values, value, 1);
}

static inline void fx_text(struct fixture *f, const char *key, const char *value)
{
    fx_key(f, key, GGUF_STRING);
    fx_string(&f->values, str_of(value));
}

static inline uint32_t fx_token_bytes(struct fixture *f, struct str text, enum token_type type,
                                      float score)
{
    uint32_t bits;
    memcpy(&bits, &score, 4);
    fx_string(&f->tokens, text);
    fx_put(&f->types, type, 4);
    fx_put(&f->scores, bits, 4);
    return f->n_tokens++;
}

static inline uint32_t fx_token(struct fixture *f, const char *text, enum token_type type,
                                float score)
{
    return fx_token_bytes(f, str_of(text), type, score);
}

static inline void fx_merge(struct fixture *f, const char *pair)
{
    fx_string(&f->merges, str_of(pair));
    f->n_merges++;
}

/* All 256 bytes as tokens 0..255, spelled in the byte alphabet. */
static inline void fx_byte_alphabet(struct fixture *f)
{
    for (int b = 0; b < 256; b++) {
        char c[4];
        int n = utf8_encode(byte_char((uint8_t)b), c);
        fx_token_bytes(f, (struct str){c, (size_t)n}, TOKEN_NORMAL, 0);
    }
}

/* <0x00> .. <0xFF> */
static inline void fx_byte_tokens(struct fixture *f)
{
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        fx_token(f, text, TOKEN_BYTE, 0);
    }
}

static inline void fx_array(struct fixture *f, const char *key, enum gguf_type elem, uint64_t n,
                            struct buf *items)
{
    fx_key(f, key, GGUF_ARRAY);
    fx_put(&f->values, elem, 4);
    fx_put(&f->values, n, 8);
    buf_add_str(&f->values, buf_str(items));
    buf_release(items);
}

static inline enum status fx_try_load(struct fixture *f, bool merges, struct err *e)
{
    fx_array(f, "tokens", GGUF_STRING, f->n_tokens, &f->tokens);
    fx_array(f, "token_type", GGUF_I32, f->n_tokens, &f->types);
    fx_array(f, "scores", GGUF_F32, f->n_tokens, &f->scores);
    if (merges)
        fx_array(f, "merges", GGUF_STRING, f->n_merges, &f->merges);
    buf_add_c(&f->file, "GGUF");
    fx_put(&f->file, 3, 4);
    fx_put(&f->file, 0, 8);
    fx_put(&f->file, f->n_values, 8);
    buf_add_str(&f->file, buf_str(&f->values));
    enum status status = gguf_open_memory((const uint8_t *)f->file.ptr, f->file.len, &f->g, e);
    return status == OK ? tokenizer_new(f->g, STR_LIT(""), &f->t, e) : status;
}

static inline void fx_load(struct fixture *f, bool merges)
{
    struct err e = {0};
    CHECKF(fx_try_load(f, merges, &e) == OK, "%s", e.text);
}

static inline void fx_release(struct fixture *f)
{
    tokenizer_free(f->t);
    if (f->g)
        gguf_close(f->g);
    buf_release(&f->values);
    buf_release(&f->tokens);
    buf_release(&f->types);
    buf_release(&f->scores);
    buf_release(&f->merges);
    buf_release(&f->file);
    *f = (struct fixture){0};
}

/* Byte-level: bytes, a few merges, <|im_start|> 262 and <|im_end|> 263 as control, "<br>" 264 as
 * user-defined; BOS 262, EOS 263. */
static inline void fx_bpe(struct fixture *f, const char *pre)
{
    fx_text(f, "model", "gpt2");
    fx_text(f, "pre", pre);
    fx_byte_alphabet(f);
    fx_token(f, "he", TOKEN_NORMAL, 0); /* 256 */
    fx_token(f, "ll", TOKEN_NORMAL, 0); /* 257 */
    fx_token(f, "llo", TOKEN_NORMAL, 0); /* 258 */
    fx_token(f, "hello", TOKEN_NORMAL, 0); /* 259 */
    fx_token(f, "aa", TOKEN_NORMAL, 0); /* 260 */
    fx_token(f, "\xc4\xa0he", TOKEN_NORMAL, 0); /* 261: space, h, e */
    fx_token(f, "<|im_start|>", TOKEN_CONTROL, 0);
    fx_token(f, "<|im_end|>", TOKEN_CONTROL, 0);
    fx_token(f, "<br>", TOKEN_USER_DEFINED, 0);
    fx_merge(f, "h e");
    fx_merge(f, "l l");
    fx_merge(f, "ll o");
    fx_merge(f, "he llo");
    fx_merge(f, "a a");
    fx_merge(f, "\xc4\xa0 he");
    fx_u32(f, "bos_token_id", 262);
    fx_u32(f, "eos_token_id", 263);
    fx_load(f, true);
}

/* SentencePiece-style: <unk> 0, <s> 1, </s> 2 (control), bytes 3..258, then pieces. */
static inline void fx_spm(struct fixture *f, bool space_prefix)
{
    fx_text(f, "model", "llama");
    fx_token(f, "<unk>", TOKEN_UNKNOWN, 0);
    fx_token(f, "<s>", TOKEN_CONTROL, 0);
    fx_token(f, "</s>", TOKEN_CONTROL, 0);
    fx_byte_tokens(f);
    fx_token(f, "ab", TOKEN_NORMAL, -1); /* 259 */
    fx_token(f, "bc", TOKEN_NORMAL, -2); /* 260 */
    fx_token(f, "abc", TOKEN_NORMAL, -3); /* 261 */
    fx_token(f,
             "\xe2\x96\x81"
             "ab",
             TOKEN_NORMAL, -4); /* 262 */
    fx_token(f, "a", TOKEN_NORMAL, -10); /* 263 */
    fx_token(f, "b", TOKEN_NORMAL, -11); /* 264 */
    fx_token(f, "c", TOKEN_NORMAL, -12); /* 265 */
    fx_token(f, "\xe2\x96\x81", TOKEN_NORMAL, -13); /* 266 */
    fx_token(f, "xy", TOKEN_NORMAL, -5); /* 267: x and y are no tokens */
    fx_token(f, "  ", TOKEN_USER_DEFINED, 0); /* 268 */
    fx_u32(f, "bos_token_id", 1);
    fx_u32(f, "eos_token_id", 2);
    fx_u32(f, "unknown_token_id", 0);
    fx_bool(f, "add_space_prefix", space_prefix);
    fx_load(f, false);
}

static inline void fx_encode(const struct fixture *f, struct str text, struct encode_options o,
                             struct tokens *out)
{
    struct err e = {0};
    out->n = 0;
    CHECKF(tokenizer_encode(f->t, text, &o, out, &e) == OK, "%s", e.text);
}

/* "1 2 3" */
static inline void fx_expect(const struct fixture *f, struct str text, struct encode_options o,
                             const char *want)
{
    struct tokens got = {0};
    struct buf line = {0};
    fx_encode(f, text, o, &got);
    for (uint32_t i = 0; i < got.n; i++)
        buf_printf(&line, i ? " %d" : "%d", got.id[i]);
    CHECKF(str_eq_c(buf_str(&line), want), "got '%s', not '%s'", line.ptr ? line.ptr : "", want);
    tokens_release(&got);
    buf_release(&line);
}

#endif
