/* The tokenizer's door: reads tokenizer.ggml.* of a GGUF, cuts added tokens out of the text and
 * hands the rest to bpe.c or spm.c. Read-only after tokenizer_new; any thread. */
#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/model/gguf.h"
#include "engine/text/tok_int.h"

enum { MAX_VOCAB = 1 << 24, MAX_TEXT = 1 << 30 };

/* ---- loading ---- */

static enum status load_texts(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    const struct gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    if (!tokens || tokens->type != GGUF_ARRAY || tokens->elem_type != GGUF_STRING)
        return err_set(e, ERR_FORMAT, "tokenizer: the file lacks tokenizer.ggml.tokens");
    if (tokens->n == 0 || tokens->n > MAX_VOCAB)
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.tokens: %llu entries, at most %d",
                       (unsigned long long)tokens->n, MAX_VOCAB);
    t->n_vocab = (uint32_t)tokens->n;
    t->text = mem_zalloc(mem_mul(t->n_vocab, sizeof *t->text));
    size_t cursor = 0;
    for (uint32_t i = 0; i < t->n_vocab; i++)
        if (!gguf_array_next_string(tokens, &cursor, &t->text[i]))
            return err_set(e, ERR_FORMAT, "tokenizer.ggml.tokens: cut after %u entries", i);
    return OK;
}

static enum status load_types(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    const struct gguf_value *types = gguf_find(g, "tokenizer.ggml.token_type");
    t->type = mem_alloc(t->n_vocab);
    memset(t->type, TOKEN_NORMAL, t->n_vocab);
    if (!types)
        return OK;
    if (types->type != GGUF_ARRAY || types->elem_type == GGUF_STRING || types->n != t->n_vocab)
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.token_type: %llu entries for %u tokens",
                       (unsigned long long)types->n, t->n_vocab);
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        int64_t type = gguf_array_i64(types, i);
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
            return err_set(e, ERR_FORMAT, "tokenizer.ggml.token_type: token %u has type %lld", i,
                           (long long)type);
        t->type[i] = (uint8_t)type;
    }
    return OK;
}

/* Spelling of a byte-level token: false when a character stands for no byte. */
static bool alphabet_bytes(struct str text, char *out, size_t *n)
{
    *n = 0;
    for (size_t at = 0; at < text.len;) {
        uint32_t c;
        int len = utf8_decode((struct str){text.ptr + at, text.len - at}, &c);
        int byte = len > 0 ? char_byte(c) : -1;
        if (byte < 0)
            return false;
        out[(*n)++] = (char)byte;
        at += (size_t)len;
    }
    return true;
}

static void plain_space_bytes(struct str text, char *out, size_t *n)
{
    *n = 0;
    for (size_t at = 0; at < text.len;) {
        bool mark = text.len - at >= 3 && memcmp(text.ptr + at, "\xe2\x96\x81", 3) == 0;
        out[(*n)++] = mark ? ' ' : text.ptr[at];
        at += mark ? 3 : 1;
    }
}

static int hex_digit(char c)
{
    const char *digits = "0123456789ABCDEF0123456789abcdef";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) % 16 : -1;
}

/* "<0x1F>" */
static bool hex_byte(struct str text, char *out)
{
    if (text.len != 6 || memcmp(text.ptr, "<0x", 3) != 0 || text.ptr[5] != '>')
        return false;
    int high = hex_digit(text.ptr[3]), low = hex_digit(text.ptr[4]);
    if (high < 0 || low < 0)
        return false;
    *out = (char)(high * 16 + low);
    return true;
}

/* What token i stands for in text: written to out (at most its own length), or borrowed. */
static struct str token_bytes(const struct tokenizer *t, uint32_t i, char *out)
{
    struct str text = t->text[i];
    size_t n = 0;
    if (t->type[i] == TOKEN_CONTROL)
        return text;
    if (t->model == TOK_BPE) {
        if (t->type[i] != TOKEN_NORMAL || !alphabet_bytes(text, out, &n))
            return text;
        return (struct str){out, n};
    }
    if (t->type[i] == TOKEN_BYTE && hex_byte(text, out))
        return (struct str){out, 1};
    plain_space_bytes(text, out, &n);
    return (struct str){out, n};
}

static void load_bytes(struct tokenizer *t)
{
    size_t total = 0, used = 0;
    for (uint32_t i = 0; i < t->n_vocab; i++)
        total += t->text[i].len;
    t->byte_pool = mem_alloc(total + 1);
    t->bytes = mem_alloc(mem_mul(t->n_vocab, sizeof *t->bytes));
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        struct str b = token_bytes(t, i, t->byte_pool + used);
        if (b.ptr == t->byte_pool + used)
            used += b.len;
        t->bytes[i] = b;
        if (b.len > t->max_bytes)
            t->max_bytes = (uint32_t)b.len;
    }
}

static enum status load_special(struct tokenizer *t, struct err *e)
{
    special_init(&t->special);
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        bool control = t->type[i] == TOKEN_CONTROL;
        if (!control && t->type[i] != TOKEN_USER_DEFINED)
            continue;
        struct str s = control ? t->text[i] : t->bytes[i];
        if (s.len && utf8_valid(s) && !special_add(&t->special, s, (int32_t)i, control))
            return err_set(e, ERR_FORMAT, "tokenizer: too many added tokens");
    }
    return OK;
}

static enum status load_id(const struct tokenizer *t, const struct gguf *g, const char *key,
                           int32_t *id, struct err *e)
{
    uint64_t value;
    *id = -1;
    if (!gguf_u64(g, key, &value))
        return OK;
    if (value >= t->n_vocab)
        return err_set(e, ERR_FORMAT, "%s: %llu, but there are %u tokens", key,
                       (unsigned long long)value, t->n_vocab);
    *id = (int32_t)value;
    return OK;
}

static bool is_end_marker(const struct tokenizer *t, uint32_t id)
{
    static const char *const markers[] = {
#define END_MARKER(text) text,
#include "engine/text/end_markers.def"
#undef END_MARKER
    };
    if (t->type[id] != TOKEN_CONTROL)
        return false;
    for (size_t i = 0; i < sizeof markers / sizeof markers[0]; i++)
        if (str_eq_c(t->text[id], markers[i]))
            return true;
    return false;
}

/* eos, eot, eom of the metadata, lists of them, and control tokens that are known end markers. */
static enum status load_stop(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    static const char *const lists[] = {"tokenizer.ggml.eos_token_ids",
                                        "tokenizer.ggml.eog_token_ids"};
    bool *is_stop = mem_zalloc(t->n_vocab);
    enum status status = OK;
    for (size_t i = 0; status == OK && i < sizeof keys / sizeof keys[0]; i++) {
        int32_t id;
        status = load_id(t, g, keys[i], &id, e);
        if (status == OK && id >= 0)
            is_stop[id] = true;
    }
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        const struct gguf_value *v = gguf_find(g, lists[i]);
        bool usable = v && v->type == GGUF_ARRAY && v->elem_type != GGUF_STRING;
        for (uint64_t k = 0; usable && k < v->n; k++) {
            int64_t id = gguf_array_i64(v, k);
            if (id >= 0 && id < t->n_vocab)
                is_stop[id] = true;
        }
    }
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        is_stop[i] = is_stop[i] || is_end_marker(t, i);
        t->n_stop += is_stop[i];
    }
    t->stop = mem_alloc(mem_mul(t->n_stop + 1, sizeof *t->stop));
    for (uint32_t i = 0, n = 0; i < t->n_vocab; i++)
        if (is_stop[i])
            t->stop[n++] = (int32_t)i;
    mem_free(is_stop);
    return status;
}

static enum status load_rules(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    enum status status = load_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, e);
    if (status == OK)
        status = load_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos, e);
    if (status == OK)
        status = load_id(t, g, "tokenizer.ggml.unknown_token_id", &t->unknown, e);
    if (status != OK)
        return status;
    (void)gguf_bool(g, "tokenizer.ggml.add_bos_token", &t->add_bos);
    (void)gguf_bool(g, "tokenizer.ggml.add_eos_token", &t->add_eos);
    t->add_bos = t->add_bos && t->bos >= 0;
    t->add_eos = t->add_eos && t->eos >= 0;
    return load_stop(t, g, e);
}

static enum status load_model(struct tokenizer *t, const struct gguf *g, struct str pre,
                              struct err *e)
{
    struct str model;
    char name[65];
    if (!gguf_string(g, "tokenizer.ggml.model", &model))
        return err_set(e, ERR_FORMAT, "tokenizer: the file lacks tokenizer.ggml.model");
    if (str_eq_c(model, "gpt2"))
        t->model = TOK_BPE;
    else if (str_eq_c(model, "llama"))
        t->model = TOK_SPM;
    else
        return err_set(e, ERR_UNSUPPORTED, "tokenizer model '%s' is not supported",
                       gguf_printable(model, name, sizeof(name)));
    if (pre.len && t->model != TOK_BPE)
        return err_set(e, ERR_INVALID,
                       "tokenizer.pre is for byte-level vocabularies, this one is SentencePiece's");
    enum status status = load_texts(t, g, e);
    if (status == OK)
        status = load_types(t, g, e);
    if (status != OK)
        return status;
    load_bytes(t);
    status = t->model == TOK_BPE ? bpe_load(t, g, pre, e) : spm_load(t, g, e);
    if (status == OK)
        status = load_special(t, e);
    return status == OK ? load_rules(t, g, e) : status;
}

enum status tokenizer_new(const struct gguf *g, struct str pre, struct tokenizer **out,
                          struct err *e)
{
    struct tokenizer *t = mem_zalloc(sizeof *t);
    t->bos = t->eos = t->unknown = -1;
    enum status status = load_model(t, g, pre, e);
    if (status != OK) {
        tokenizer_free(t);
        return status;
    }
    *out = t;
    return OK;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    mem_free(t->text);
    mem_free(t->bytes);
    mem_free(t->byte_pool);
    mem_free(t->type);
    mem_free(t->direct);
    mem_free(t->stop);
    mem_free(t->bigrams.slot);
    byte_map_release(&t->by_bytes);
    pair_map_release(&t->pairs);
    special_release(&t->special);
    pretok_free(t->pretok);
    mem_free(t);
}

void mark_direct(struct tokenizer *t, uint32_t (*symbols)(struct encode *x, struct str bytes))
{
    struct encode x = {.t = t};
    t->direct = mem_zalloc(t->n_vocab);
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        struct str b = t->bytes[i];
        if (t->type[i] != TOKEN_NORMAL || b.len == 0 ||
            byte_map_find(&t->by_bytes, b) != (int32_t)i)
            continue;
        if (symbols) {
            uint32_t n = merge_run(&t->pairs, &x.merge, symbols(&x, b));
            if (n != 1 || x.merge.sym[0] != i)
                continue;
        }
        t->direct[i] = true;
        if (b.len > t->max_direct)
            t->max_direct = (uint32_t)b.len;
    }
    merge_work_release(&x.merge);
}

int32_t find_direct(const struct tokenizer *t, struct str bytes)
{
    if (bytes.len > t->max_direct)
        return -1;
    int32_t id = byte_map_find(&t->by_bytes, bytes);
    return id >= 0 && t->direct[id] ? id : -1;
}

/* ---- what is known about a token ---- */

const char *tokenizer_pre(const struct tokenizer *t)
{
    return t->pretok ? pretok_name(t->pretok) : "";
}

uint32_t tokenizer_n_vocab(const struct tokenizer *t)
{
    return t->n_vocab;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->add_bos;
}

bool tokenizer_adds_eos(const struct tokenizer *t)
{
    return t->add_eos;
}

const int32_t *tokenizer_stop_tokens(const struct tokenizer *t, uint32_t *n)
{
    *n = t->n_stop;
    return t->stop;
}

bool tokenizer_is_stop(const struct tokenizer *t, int32_t token)
{
    for (uint32_t i = 0; i < t->n_stop; i++)
        if (t->stop[i] == token)
            return true;
    return false;
}

enum token_type tokenizer_type(const struct tokenizer *t, int32_t token)
{
    CHECK(token >= 0 && (uint32_t)token < t->n_vocab);
    return (enum token_type)t->type[token];
}

struct str tokenizer_text(const struct tokenizer *t, int32_t token)
{
    CHECK(token >= 0 && (uint32_t)token < t->n_vocab);
    return t->text[token];
}

struct str tokenizer_bytes(const struct tokenizer *t, int32_t token)
{
    CHECK(token >= 0 && (uint32_t)token < t->n_vocab);
    return t->bytes[token];
}

void tokens_release(struct tokens *t)
{
    mem_free(t->id);
    *t = (struct tokens){0};
}

void tokens_add(struct tokens *t, int32_t id)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 64;
        t->id = mem_realloc(t->id, mem_mul(t->cap, sizeof *t->id));
    }
    t->id[t->n++] = id;
}

/* ---- encoding ---- */

bool encode_emit(struct encode *x, int32_t id)
{
    if (x->o->max_tokens && x->out->n - x->n_start >= x->o->max_tokens) {
        if (x->status == OK)
            x->status =
                err_set(x->e, ERR_CONTEXT_LENGTH, "text has more than %u tokens", x->o->max_tokens);
        return false;
    }
    tokens_add(x->out, id);
    return true;
}

static bool encode_plain(struct encode *x, struct str text)
{
    if (text.len == 0)
        return true;
    return x->t->model == TOK_BPE ? bpe_fragment(x, text) : spm_fragment(x, text);
}

static bool encode_all(struct encode *x, struct str text)
{
    const struct special_filter filter = {.control = x->o->parse_special,
                                          .user = x->t->model == TOK_BPE,
                                          .trusted = x->o->trusted,
                                          .n_trusted = x->o->n_trusted};
    size_t at = 0;
    struct special_match m = {0};
    bool found = special_find(&x->t->special, text, 0, &filter, &m);
    bool has_bos = found && m.start == 0 && m.id == x->t->bos;
    if (x->o->add_special && x->t->add_bos && !has_bos && !encode_emit(x, x->t->bos))
        return false;
    for (; found; found = special_find(&x->t->special, text, at, &filter, &m)) {
        if (!encode_plain(x, (struct str){text.ptr + at, m.start - at}) || !encode_emit(x, m.id))
            return false;
        at = m.end;
    }
    if (!encode_plain(x, (struct str){text.ptr + at, text.len - at}))
        return false;
    bool has_eos = x->out->n > x->n_start && x->out->id[x->out->n - 1] == x->t->eos;
    return !x->o->add_special || !x->t->add_eos || has_eos || encode_emit(x, x->t->eos);
}

enum status tokenizer_encode(const struct tokenizer *t, struct str text,
                             const struct encode_options *o, struct tokens *out, struct err *e)
{
    if (text.len > MAX_TEXT)
        return err_set(e, ERR_TOO_LARGE, "text of %zu bytes, at most %d", text.len, MAX_TEXT);
    if (!utf8_valid(text))
        return err_set(e, ERR_INVALID, "text is not valid utf-8 at byte %zu", utf8_error_at(text));
    struct encode x = {.t = t, .o = o, .out = out, .n_start = out->n, .e = e};
    if (!encode_all(&x, text))
        DCHECK(x.status != OK);
    merge_work_release(&x.merge);
    pretok_work_release(&x.pretok);
    buf_release(&x.fragment);
    return x.status;
}
