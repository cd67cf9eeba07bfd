/* POST /tokenize and /detokenize, GET /tokenizer_info. */
#include "server/api/api.h"

#include "base/json.h"
#include "server/exchange.h"
#include "server/api/messages.h"
#include "server/api/prepare.h"
#include "server/server.h"
#include "server/service.h"

static enum status tokenize(const struct exchange *ex, const struct params *p, struct tokens *out,
                            struct err *e)
{
    const struct json *text = p->prompt ? p->prompt : p->content;
    if (p->messages)
        return messages_encode(ex->service, p, out, e);
    if (!text)
        return err_set_field(e, ERR_INVALID, "prompt", "missing",
                             "\"prompt\" or \"messages\" is required");
    if (!json_is(text, JSON_STRING))
        return err_set_field(e, ERR_INVALID, p->prompt ? "prompt" : "content", "invalid_type",
                             "\"%s\" must be a string", p->prompt ? "prompt" : "content");
    const struct encode_options options = {
        .add_special = p->add_special,
        .parse_special = p->parse_special,
    };
    return tokenizer_encode(ex->service->tok, json_string(text), &options, out, e);
}

void api_tokenize(struct exchange *ex)
{
    struct json_doc *doc;
    struct params p;
    struct tokens tokens = {0};
    struct err e = {0};
    if (prepare_params(ex, API_TOKENIZE, &doc, &p) == OK) {
        if (tokenize(ex, &p, &tokens, &e)) {
            reply_err(ex, &e);
        } else {
            reply_json(ex, 200);
            struct buf *out = &ex->reply.body;
            buf_add_c(out, "{\"tokens\":[");
            for (uint32_t i = 0; i < tokens.n; i++)
                buf_printf(out, "%s%d", i ? "," : "", tokens.id[i]);
            buf_printf(out, "],\"count\":%u,\"max_model_len\":%u}", tokens.n,
                       ex->service->max_context);
        }
    }
    tokens_release(&tokens);
    json_free(doc);
}

void api_detokenize(struct exchange *ex)
{
    struct json_doc *doc;
    struct params p;
    struct tokens tokens = {0};
    struct buf text = {0};
    struct err e = {0};
    if (prepare_params(ex, API_DETOKENIZE, &doc, &p) == OK) {
        enum status status = OK;
        if (!p.tokens || !json_is(p.tokens, JSON_ARRAY))
            status = err_set_field(&e, ERR_INVALID, "tokens", p.tokens ? "invalid_type" : "missing",
                                   "\"tokens\" must be an array of token ids");
        if (!status)
            status = prepare_ids(ex->service, p.tokens, "tokens", &tokens, &e);
        if (!status)
            status = tokenizer_decode(ex->service->tok, tokens.id, tokens.n, false, &text, &e);
        if (status) {
            reply_err(ex, &e);
        } else {
            reply_json(ex, 200);
            buf_add_c(&ex->reply.body, "{\"prompt\":");
            json_add_string(&ex->reply.body, buf_str(&text));
            buf_add_char(&ex->reply.body, '}');
        }
    }
    buf_release(&text);
    tokens_release(&tokens);
    json_free(doc);
}

static void add_token(struct buf *out, const char *name, const struct tokenizer *tok, int32_t token)
{
    buf_printf(out, ",\"%s\":", name);
    if (token < 0) {
        buf_add_c(out, "null");
        return;
    }
    json_add_string(out, tokenizer_text(tok, token));
    buf_printf(out, ",\"%s_id\":%d", name, token);
}

void api_tokenizer_info(struct exchange *ex)
{
    const struct tokenizer *tok = ex->service->tok;
    reply_json(ex, 200);
    struct buf *out = &ex->reply.body;
    uint32_t n_stop;
    const int32_t *stop = tokenizer_stop_tokens(tok, &n_stop);
    buf_printf(out, "{\"tokenizer_class\":\"millrace\",\"vocab_size\":%u,\"model_max_length\":%u",
               tokenizer_n_vocab(tok), ex->service->max_context);
    add_token(out, "bos_token", tok, tokenizer_bos(tok));
    add_token(out, "eos_token", tok, tokenizer_eos(tok));
    buf_printf(out, ",\"add_bos_token\":%s,\"add_eos_token\":%s,\"stop_token_ids\":[",
               tokenizer_adds_bos(tok) ? "true" : "false",
               tokenizer_adds_eos(tok) ? "true" : "false");
    for (uint32_t i = 0; i < n_stop; i++)
        buf_printf(out, "%s%d", i ? "," : "", stop[i]);
    buf_add_c(out, "]}");
}
