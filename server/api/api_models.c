/* GET /v1/models and /v1/models/{id}, in OpenAI's shape or, for its clients, Anthropic's. */
#include "server/api/api.h"

#include <stdio.h>
#include <time.h>

#include "base/json.h"
#include "server/exchange.h"
#include "server/server.h"
#include "server/service.h"

static void add_anthropic(const struct service *v, struct buf *out, const char *id)
{
    char date[32];
    time_t created = (time_t)v->created;
    struct tm utc;
    gmtime_r(&created, &utc);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
    buf_add_c(out, "{\"type\":\"model\",\"id\":");
    json_add_string(out, str_of(id));
    buf_add_c(out, ",\"display_name\":");
    json_add_string(out, str_of(id));
    buf_printf(out, ",\"created_at\":\"%s\"}", date);
}

static void add_model(const struct service *v, struct buf *out, const char *id)
{
    const struct engine_info *info = v->info;
    buf_add_c(out, "{\"id\":");
    json_add_string(out, str_of(id));
    buf_printf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"millrace\",\"root\":",
               (long long)v->created);
    json_add_string(out, str_of(v->id[0]));
    buf_printf(out,
               ",\"parent\":null,\"max_model_len\":%u,\"meta\":{\"architecture\":", v->max_context);
    json_add_string(out, str_of(info->architecture));
    buf_add_c(out, ",\"file_type\":");
    json_add_string(out, str_of(info->file_type));
    buf_printf(out,
               ",\"n_vocab\":%u,\"n_ctx_train\":%u,\"n_embd\":%u,\"n_params\":%llu,\"size\":%llu}}",
               info->n_vocab, info->n_ctx_train, info->n_embd, (unsigned long long)info->n_params,
               (unsigned long long)info->tensor_bytes);
}

static void add_one(bool anthropic, const struct service *v, struct buf *out, const char *id)
{
    if (anthropic)
        add_anthropic(v, out, id);
    else
        add_model(v, out, id);
}

void api_models(struct exchange *ex)
{
    const struct server *srv = ex->srv;
    const struct service *last = srv->service[srv->n_services - 1];
    reply_json(ex, 200);
    struct buf *out = &ex->reply.body;
    buf_add_c(out, ex->anthropic ? "{\"data\":[" : "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < srv->n_services; i++) {
        for (size_t k = 0; k < srv->service[i]->n_ids; k++) {
            if (i || k)
                buf_add_char(out, ',');
            add_one(ex->anthropic, srv->service[i], out, srv->service[i]->id[k]);
        }
    }
    buf_add_char(out, ']');
    if (ex->anthropic) {
        buf_add_c(out, ",\"has_more\":false,\"first_id\":");
        json_add_string(out, str_of(srv->service[0]->id[0]));
        buf_add_c(out, ",\"last_id\":");
        json_add_string(out, str_of(last->id[last->n_ids - 1]));
    }
    buf_add_char(out, '}');
}

void api_model(struct exchange *ex)
{
    struct str name = str_of(ex->path_arg);
    const char *id = NULL;
    const struct service *v = service_find(ex->srv->service, ex->srv->n_services, &name, &id);
    if (!v) {
        struct err e;
        err_set_field(&e, ERR_NOT_FOUND, "model", "model_not_found",
                      "the model \"%s\" does not exist, this server has \"%s\"", ex->path_arg,
                      ex->service->id[0]);
        reply_err(ex, &e);
        return;
    }
    reply_json(ex, 200);
    add_one(ex->anthropic, v, &ex->reply.body, id);
}
