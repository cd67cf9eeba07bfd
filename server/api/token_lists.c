/* JSON lists of tokens and texts to what the sampler takes; see token_lists.h. */
#include "server/api/token_lists.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/text/text.h"
#include "server/api/prepare.h"
#include "server/limits.h"
#include "server/service.h"

/* ---- parts of the errors ---- */

static enum status not_a_list(const char *field, const char *of, struct err *e)
{
    return err_set_field(e, ERR_INVALID, field, "invalid_type", "\"%s\" must be an array of %s",
                         field, of);
}

static enum status too_many(const char *field, size_t n, size_t most, struct err *e)
{
    return err_set_field(e, ERR_INVALID, field, "out_of_range",
                         "\"%s\" has %zu entries, at most %zu are allowed", field, n, most);
}

/* A text of 1 to most bytes. */
static enum status read_text(const struct json *v, const char *field, size_t i, size_t most,
                             struct str *out, struct err *e)
{
    char where[ERR_PARAM_CAP];
    snprintf(where, sizeof(where), "%s[%zu]", field, i);
    if (!json_is(v, JSON_STRING))
        return err_set_field(e, ERR_INVALID, where, "invalid_type", "\"%s\" must be a string",
                             where);
    *out = json_string(v);
    if (out->len == 0 || out->len > most)
        return err_set_field(e, ERR_INVALID, where, "out_of_range",
                             "\"%s\" must have 1 to %zu bytes, not %zu", where, most, out->len);
    return OK;
}

/* ---- stop_token_ids, allowed_token_ids ---- */

static enum status read_stop_tokens(const struct service *service, const struct json *v,
                                    struct request *r, struct err *e)
{
    struct tokens ids = {0};
    if (!json_is(v, JSON_ARRAY))
        return not_a_list("stop_token_ids", "token ids", e);
    if (json_count(v) > MAX_STOP_TOKENS)
        return too_many("stop_token_ids", json_count(v), MAX_STOP_TOKENS, e);
    enum status status = prepare_ids(service, v, "stop_token_ids", &ids, e);
    r->stop_tokens = ids.id;
    r->n_stop_tokens = ids.n;
    return status;
}

static enum status read_allowed(const struct service *service, const struct json *v,
                                struct request *r, struct err *e)
{
    struct tokens ids = {0};
    if (!json_is(v, JSON_ARRAY))
        return not_a_list("allowed_token_ids", "token ids", e);
    if (json_count(v) == 0 || json_count(v) > service->n_vocab)
        return err_set_field(e, ERR_INVALID, "allowed_token_ids", "out_of_range",
                             "\"allowed_token_ids\" must have 1 to %u entries, not %zu",
                             service->n_vocab, json_count(v));
    enum status status = prepare_ids(service, v, "allowed_token_ids", &ids, e);
    r->allowed = ids.id;
    r->sampling.allowed = ids.id;
    r->sampling.n_allowed = ids.n;
    return status;
}

/* ---- logit_bias ---- */

#define BAN -100.0

/* Canonical decimal only: "1" and "01" would be two keys for one token. */
static bool token_key(struct str key, uint32_t n_vocab, int32_t *token)
{
    uint64_t x = 0;
    if (key.len == 0 || key.len > 10 || (key.len > 1 && key.ptr[0] == '0'))
        return false;
    for (size_t i = 0; i < key.len; i++) {
        if (key.ptr[i] < '0' || key.ptr[i] > '9')
            return false;
        x = x * 10 + (uint64_t)(key.ptr[i] - '0');
    }
    *token = (int32_t)x;
    return x < n_vocab;
}

static int by_token(const void *a, const void *b)
{
    int32_t x = ((const struct logit_bias *)a)->token, y = ((const struct logit_bias *)b)->token;
    return (x > y) - (x < y);
}

/* Ascending tokens; biases of equal ones are added, a ban stays one. */
static void take_bias(struct request *r, uint32_t n)
{
    struct logit_bias *b = r->bias;
    uint32_t n_kept = 0;
    qsort(b, n, sizeof(*b), by_token);
    for (uint32_t i = 0; i < n; i++) {
        struct logit_bias *last = &b[n_kept ? n_kept - 1 : 0];
        bool bans = last->bias <= (float)BAN || b[i].bias <= (float)BAN;
        if (n_kept && last->token == b[i].token)
            last->bias = bans ? (float)BAN : last->bias + b[i].bias;
        else
            b[n_kept++] = b[i];
    }
    r->sampling.bias = b;
    r->sampling.n_bias = n_kept;
}

static enum status read_bias_value(const struct json *v, const char *what, int n_what, float *out,
                                   struct err *e)
{
    double bias = json_is(v, JSON_NUMBER) ? json_double(v) : NAN;
    if (json_is(v, JSON_FALSE))
        bias = BAN;
    if (!(bias >= BAN && bias <= -BAN))
        return err_set_field(
            e, ERR_INVALID, "logit_bias", "out_of_range",
            "\"logit_bias\" of token %.*s must be a number from -100 to 100, or false", n_what,
            what);
    *out = (float)bias;
    return OK;
}

static enum status read_bias_object(const struct service *service, const struct json *v,
                                    struct request *r, struct err *e)
{
    uint32_t n = 0;
    if (json_count(v) > MAX_BIAS)
        return too_many("logit_bias", json_count(v), MAX_BIAS, e);
    r->bias = mem_alloc(mem_mul(json_count(v) + 1, sizeof(*r->bias)));
    for (const struct json *m = json_first(v); m; m = json_next(m)) {
        struct str key = json_key(m);
        int shown = (int)(key.len < 32 ? key.len : 32);
        if (!token_key(key, service->n_vocab, &r->bias[n].token))
            return err_set_field(
                e, ERR_INVALID, "logit_bias", "invalid_token_id",
                "\"logit_bias\" has the key \"%.*s\", which is not a token id from 0 "
                "to %u",
                shown, key.ptr, service->n_vocab - 1);
        if (read_bias_value(m, key.ptr, shown, &r->bias[n++].bias, e))
            return e->status;
    }
    take_bias(r, n);
    return OK;
}

/* Token ids of one entry's first part: an id, or a text, each of whose tokens is meant. */
static enum status read_bias_tokens(const struct service *service, const struct json *v, size_t i,
                                    struct tokens *out, struct err *e)
{
    static const struct encode_options plain = {0};
    int64_t id;
    struct str text;
    if (json_is(v, JSON_NUMBER) && json_i64(v, 0, (int64_t)service->n_vocab - 1, &id)) {
        tokens_add(out, (int32_t)id);
        return OK;
    }
    if (json_is(v, JSON_NUMBER))
        return err_set_field(
            e, ERR_INVALID, "logit_bias", "invalid_token_id",
            "\"logit_bias[%zu]\" must begin with a token id from 0 to %u or a text", i,
            service->n_vocab - 1);
    if (read_text(v, "logit_bias", i, MAX_WORD_BYTES, &text, e))
        return e->status;
    return tokenizer_encode(service->tok, text, &plain, out, e);
}

static enum status add_bias_pair(const struct service *service, const struct json *pair, size_t i,
                                 struct buf *biases, struct err *e)
{
    struct tokens ids = {0};
    struct logit_bias b;
    char what[32];
    if (!json_is(pair, JSON_ARRAY) || json_count(pair) != 2)
        return err_set_field(
            e, ERR_INVALID, "logit_bias", "invalid_type",
            "\"logit_bias[%zu]\" must be an array of a token id or text, and a bias", i);
    snprintf(what, sizeof(what), "%zu of the list", i);
    enum status status = read_bias_tokens(service, json_first(pair), i, &ids, e);
    if (!status)
        status = read_bias_value(json_next(json_first(pair)), what, (int)strlen(what), &b.bias, e);
    for (uint32_t k = 0; !status && k < ids.n; k++) {
        b.token = ids.id[k];
        buf_add(biases, (const char *)&b, sizeof(b));
    }
    tokens_release(&ids);
    return status;
}

static enum status read_bias_list(const struct service *service, const struct json *v,
                                  struct request *r, struct err *e)
{
    struct buf biases = {0};
    enum status status = OK;
    size_t i = 0;
    if (json_count(v) > MAX_BIAS)
        return too_many("logit_bias", json_count(v), MAX_BIAS, e);
    for (const struct json *m = json_first(v); m && !status; m = json_next(m), i++) {
        status = add_bias_pair(service, m, i, &biases, e);
        if (!status && biases.len > MAX_BIAS * sizeof(struct logit_bias))
            status = too_many("logit_bias", biases.len / sizeof(struct logit_bias), MAX_BIAS, e);
    }
    size_t n = biases.len / sizeof(struct logit_bias);
    r->bias = mem_dup(biases.ptr, biases.len);
    buf_release(&biases);
    if (!status)
        take_bias(r, (uint32_t)n);
    return status;
}

static enum status read_bias(const struct service *service, const struct json *v, struct request *r,
                             struct err *e)
{
    if (json_is(v, JSON_OBJECT))
        return read_bias_object(service, v, r, e);
    if (json_is(v, JSON_ARRAY))
        return read_bias_list(service, v, r, e);
    return err_set_field(e, ERR_INVALID, "logit_bias", "invalid_type",
                         "\"logit_bias\" must be an object, or an array of pairs");
}

/* ---- bad_words ---- */

static void add_word(struct tokens *list, const struct tokens *word)
{
    tokens_add(list, (int32_t)word->n);
    for (uint32_t i = 0; i < word->n; i++)
        tokens_add(list, word->id[i]);
}

/* A word as it begins a text, and as it follows a space where that is one word of other tokens. */
static enum status add_bad_word(const struct service *service, struct str text, struct tokens *list,
                                struct err *e)
{
    static const struct encode_options plain = {0};
    struct tokens bare = {0}, spaced = {0};
    struct buf with_space = {0};
    size_t n_blank = 0;
    while (n_blank + 1 < text.len && text.ptr[n_blank] == ' ')
        n_blank++;
    struct str word = {text.ptr + n_blank, text.len - n_blank};
    buf_add(&with_space, " ", 1);
    buf_add_str(&with_space, word);
    enum status status = tokenizer_encode(service->tok, word, &plain, &bare, e);
    if (!status)
        status = tokenizer_encode(service->tok, buf_str(&with_space), &plain, &spaced, e);
    if (!status && bare.n)
        add_word(list, &bare);
    if (!status && bare.n && spaced.n == bare.n && spaced.id[0] != bare.id[0])
        add_word(list, &spaced);
    buf_release(&with_space);
    tokens_release(&bare);
    tokens_release(&spaced);
    return status;
}

static enum status read_bad_words(const struct service *service, const struct json *v,
                                  struct request *r, struct err *e)
{
    struct tokens list = {0};
    enum status status = OK;
    size_t i = 0;
    if (!json_is(v, JSON_ARRAY))
        return not_a_list("bad_words", "strings", e);
    if (json_count(v) > MAX_WORDS)
        return too_many("bad_words", json_count(v), MAX_WORDS, e);
    for (const struct json *m = json_first(v); m && !status; m = json_next(m)) {
        struct str text;
        status = read_text(m, "bad_words", i++, MAX_WORD_BYTES, &text, e);
        if (!status)
            status = add_bad_word(service, text, &list, e);
    }
    r->bad = list.id;
    r->sampling.bad = list.id;
    r->sampling.n_bad = list.n;
    return status;
}

/* ---- DRY ---- */

/* Marks the tokens whose bytes hold the text, and the last token of the text itself, which may be of several. */
static enum status mark_breaker(const struct service *service, struct str text, uint32_t *bits,
                                struct err *e)
{
    static const struct encode_options plain = {0};
    struct tokens ids = {0};
    enum status status = tokenizer_encode(service->tok, text, &plain, &ids, e);
    if (!status && ids.n)
        bits[ids.id[ids.n - 1] / 32] |= 1u << ids.id[ids.n - 1] % 32;
    tokens_release(&ids);
    for (uint32_t t = 0; !status && t < service->n_vocab; t++) {
        struct str s = tokenizer_bytes(service->tok, (int32_t)t);
        if (s.len && memmem(s.ptr, s.len, text.ptr, text.len))
            bits[t / 32] |= 1u << t % 32;
    }
    return status;
}

static enum status mark_breakers(const struct service *service, const struct json *v,
                                 uint32_t *bits, struct err *e)
{
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    enum status status = OK;
    size_t i = 0;
    for (; !v && i < sizeof(usual) / sizeof(usual[0]) && !status; i++)
        status = mark_breaker(service, str_of(usual[i]), bits, e);
    for (const struct json *m = v ? json_first(v) : NULL; m && !status; m = json_next(m)) {
        struct str text;
        status = read_text(m, "dry_sequence_breakers", i++, MAX_BREAKER_BYTES, &text, e);
        if (!status)
            status = mark_breaker(service, text, bits, e);
    }
    return status;
}

static enum status read_dry(const struct service *service, const struct params *p,
                            struct request *r, struct err *e)
{
    const struct json *v = p->dry_sequence_breakers;
    struct sampling_params *s = &r->sampling;
    if (v && !json_is(v, JSON_ARRAY))
        return not_a_list("dry_sequence_breakers", "strings", e);
    if (v && json_count(v) > MAX_BREAKERS)
        return too_many("dry_sequence_breakers", json_count(v), MAX_BREAKERS, e);
    bool sees_none = p->given[FIELD_dry_penalty_last_n] && p->dry_penalty_last_n == 0;
    if (!(p->dry_multiplier > 0) || sees_none)
        return OK;
    r->n_dry_words = service->n_vocab / 32 + 1;
    r->dry_breakers = mem_zalloc(mem_mul(r->n_dry_words, sizeof(uint32_t)));
    s->dry_breakers = r->dry_breakers;
    s->dry_multiplier = (float)p->dry_multiplier;
    s->dry_base = (float)p->dry_base;
    s->dry_allowed_length = (uint32_t)p->dry_allowed_length;
    s->dry_last_n = p->dry_penalty_last_n > 0 ? (uint32_t)p->dry_penalty_last_n : 0;
    return mark_breakers(service, v, r->dry_breakers, e);
}

enum status token_lists_read(const struct service *service, const struct params *p,
                             struct request *r, struct err *e)
{
    enum status status = OK;
    if (p->stop_token_ids)
        status = read_stop_tokens(service, p->stop_token_ids, r, e);
    if (!status && p->logit_bias)
        status = read_bias(service, p->logit_bias, r, e);
    if (!status && p->allowed_token_ids)
        status = read_allowed(service, p->allowed_token_ids, r, e);
    if (!status && p->bad_words)
        status = read_bad_words(service, p->bad_words, r, e);
    return status ? status : read_dry(service, p, r, e);
}
