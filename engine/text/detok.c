/* Tokens -> text, whole or one token at a time. A token may end inside a code point: what is not
 * complete yet (at most 3 bytes) waits for the next token. Called by the engine thread (one detok a
 * sequence) and by request handlers; no allocation in detok_push and detok_flush. */
#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/text/tok_int.h"

enum { MAX_HELD = 3, REPLACEMENT_LEN = 3 };

static bool is_added(enum token_type type)
{
    return type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED;
}

/* Encoding puts a space in front of a fragment in SentencePiece-style vocabularies with space prefix;
 * added tokens part fragments. */
struct str tokenizer_shown(const struct tokenizer *t, int32_t token, bool skip_special,
                           bool *at_start)
{
    enum token_type type = tokenizer_type(t, token);
    struct str s = tokenizer_bytes(t, token);
    if (skip_special && type == TOKEN_CONTROL)
        s.len = 0;
    else if (t->space_prefix && *at_start && type == TOKEN_NORMAL && s.len && s.ptr[0] == ' ')
        s = (struct str){s.ptr + 1, s.len - 1};
    *at_start = is_added(type);
    return s;
}

enum status tokenizer_decode(const struct tokenizer *t, const int32_t *id, uint32_t n,
                             bool skip_special, struct buf *out, struct err *e)
{
    struct buf raw = {0};
    bool at_start = true;
    for (uint32_t i = 0; i < n; i++) {
        if (id[i] < 0 || (uint32_t)id[i] >= t->n_vocab) {
            buf_release(&raw);
            return err_set(e, ERR_INVALID, "token %d is not in the vocabulary of %u tokens", id[i],
                           t->n_vocab);
        }
        buf_add_str(&raw, tokenizer_shown(t, id[i], skip_special, &at_start));
    }
    utf8_add_lossy(out, buf_str(&raw));
    buf_release(&raw);
    return OK;
}

void detok_init(struct detok *d, const struct tokenizer *tok, bool skip_special)
{
    *d = (struct detok){.tok = tok, .skip_special = skip_special, .at_start = true};
}

uint32_t detok_bound(const struct tokenizer *tok)
{
    return (tok->max_bytes + MAX_HELD) * REPLACEMENT_LEN;
}

/* Length of the sequence a byte starts; 1 for a byte that starts none. */
static uint32_t announced_len(uint8_t lead)
{
    return lead >= 0xf0 && lead <= 0xf4  ? 4
           : lead >= 0xe0 && lead < 0xf0 ? 3
           : lead >= 0xc2 && lead < 0xe0 ? 2
                                         : 1;
}

static uint32_t replace(char *out)
{
    memcpy(out, "\xef\xbf\xbd", REPLACEMENT_LEN);
    return REPLACEMENT_LEN;
}

/* Adds one byte behind what is held; writes what that settles. */
static uint32_t push_byte(struct detok *d, char byte, char *out)
{
    uint32_t n_out = 0;
    d->held[d->n_held++] = byte;
    while (d->n_held) {
        struct str held = {d->held, d->n_held};
        uint32_t c;
        int len = utf8_decode(held, &c);
        if (len > 0) {
            memcpy(out + n_out, held.ptr, held.len);
            d->n_held = 0;
            return n_out + (uint32_t)held.len;
        }
        if (utf8_complete_len(held) == 0 && held.len < announced_len((uint8_t)d->held[0]))
            return n_out;
        /* The new byte does not go on with what was held: that is one malformed sequence, and the
         * new byte starts over (or is malformed by itself). */
        n_out += replace(out + n_out);
        bool alone = d->n_held == 1;
        d->n_held = 0;
        if (!alone)
            d->held[d->n_held++] = byte;
    }
    return n_out;
}

uint32_t detok_push(struct detok *d, int32_t token, char *out, uint32_t out_cap)
{
    CHECK(out_cap >= detok_bound(d->tok));
    struct str s = tokenizer_shown(d->tok, token, d->skip_special, &d->at_start);
    uint32_t n_out = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (d->n_held == 0 && (uint8_t)s.ptr[i] < 0x80)
            out[n_out++] = s.ptr[i];
        else
            n_out += push_byte(d, s.ptr[i], out + n_out);
    }
    return n_out;
}

uint32_t detok_flush(struct detok *d, char *out, uint32_t out_cap)
{
    CHECK(out_cap >= REPLACEMENT_LEN);
    if (d->n_held == 0)
        return 0;
    d->n_held = 0;
    return replace(out);
}
