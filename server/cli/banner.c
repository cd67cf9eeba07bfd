/* The lines of a server that is ready; see banner.h. */
#include "server/cli/banner.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/size.h"

/* The first request that people try is README's, too: its answer is short, right, and decided by a wide
 * margin at every precision (tests/py/test_readme.py). */
#define FIRST_CHAT                                                                                 \
    "{\"stream\":true,\"temperature\":0,\"messages\":[{\"role\":\"user\",\"content\":"             \
    "\"What is the chemical symbol for water?\"}]}"
#define FIRST_COMPLETION                                                                           \
    "{\"stream\":true,\"temperature\":0,\"max_tokens\":32,\"prompt\":"                             \
    "\"The capital of France is\"}"

static void add_url(struct buf *out, const struct server *srv)
{
    const char *host = srv->set->host;
    if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "*") == 0)
        host = "127.0.0.1";
    if (strcmp(host, "::") == 0 || strcmp(host, "[::]") == 0)
        host = "::1";
    bool bare = strchr(host, ':') && *host != '[';
    buf_printf(out, "http://%s%s%s:%u", bare ? "[" : "", host, bare ? "]" : "", srv->port);
}

/* ---- text ---- */

static void print_stop_tokens(const struct tokenizer *tok)
{
    uint32_t n;
    const int32_t *id = tokenizer_stop_tokens(tok, &n);
    printf("  stops  ");
    for (uint32_t i = 0; i < n; i++) {
        struct str text = tokenizer_text(tok, id[i]);
        printf(" %.*s", (int)text.len, text.ptr);
    }
    printf("%s\n", n ? "" : " none");
}

struct places {
    uint64_t blocks[3], bytes[3]; /* arena, RAM tier, spill file */
};

static struct places sum_places(const struct kv_memory *kv)
{
    struct places p = {{0}, {0}};
    for (uint32_t g = 0; g < kv->layout.n_groups; g++) {
        const uint32_t n[3] = {kv->plan.n_frames[g], kv->plan.n_host[g], kv->plan.n_file[g]};
        size_t block = kv->layout.group[g].block_bytes;
        for (int i = 0; i < 3; i++) {
            p.blocks[i] += n[i];
            p.bytes[i] += n[i] * (i == 2 ? kv_tier_slot_bytes(block) : block);
        }
    }
    return p;
}

static void print_kv(const struct service *v)
{
    const struct settings *set = v->set;
    const struct places p = sum_places(&v->kv);
    char types[KV_DTYPES_CAP];
    kv_layout_dtypes(&v->kv.layout, types);
    printf("  kv      %" PRIu64 " blocks of %u tokens, %s, %s: %s\n", p.blocks[0],
           v->kv.layout.n_slots, types, size_shown(p.bytes[0]).text, v->kv.plan.why);
    if (p.blocks[1])
        printf("  ram     %" PRIu64 " blocks more, %s: kv.host_bytes\n", p.blocks[1],
               size_shown(p.bytes[1]).text);
    if (p.blocks[2])
        printf("  spill   %" PRIu64 " blocks more, %s in %s: kv.spill.bytes\n", p.blocks[2],
               size_shown(p.bytes[2]).text, set->kv_spill_path);
    if (v->kv.disk)
        printf("  disk    prompts that are repeated, up to %s in %s: prefix.disk.bytes\n",
               size_shown(set->prefix_disk_bytes).text, set->prefix_disk_path);
}

static void print_text(const struct service *v, const char *version, const char *url,
                       bool needs_key)
{
    const struct settings *set = v->set;
    bool chat = v->tmpl != NULL;
    printf("millrace %s  %s: %s %s, %.0f M parameters, context %u tokens\n", version, v->id[0],
           v->info->architecture, v->info->file_type, (double)v->info->n_params / 1e6,
           v->max_context);
    printf("  %-7s %s\n", v->info->device.name, v->info->device.text);
    print_kv(v);
    printf(
        "  limits  %lld running, %lld queued, %lld tokens per step, max_tokens %lld on chat when "
        "not set\n",
        (long long)set->sched_max_running, (long long)set->sched_max_queued,
        (long long)set->sched_max_batch_tokens, (long long)set->limits_default_max_tokens);
    print_stop_tokens(v->tok);
    printf("  url     %s\n", url);
    printf("  try     curl -N %s/v1/%s %s-d '%s'\n", url, chat ? "chat/completions" : "completions",
           needs_key ? "-H \"Authorization: Bearer $MILLRACE_API_KEY\" " : "",
           chat ? FIRST_CHAT : FIRST_COMPLETION);
    if (!chat)
        puts("          (the model has no chat template: completions only, or set one with "
             "--chat-template)");
}

/* ---- JSON ---- */

static void add_number(struct buf *out, const char *name, uint64_t value)
{
    buf_printf(out, ",\"%s\":%" PRIu64, name, value);
}

static void add_text(struct buf *out, const char *name, const char *text)
{
    buf_printf(out, ",\"%s\":", name);
    json_add_string(out, str_of(text));
}

static void print_json(const struct service *v, const char *version, const char *url)
{
    struct buf out = {0}, message = {0};
    const struct places p = sum_places(&v->kv);
    char types[KV_DTYPES_CAP];
    kv_layout_dtypes(&v->kv.layout, types);
    buf_printf(&message, "millrace %s is ready: url %s serves %s", version, url, v->id[0]);
    buf_add_c(&out, "{\"level\":\"info\"");
    add_text(&out, "message", message.ptr);
    add_text(&out, "version", version);
    add_text(&out, "model", v->id[0]);
    add_text(&out, "architecture", v->info->architecture);
    add_text(&out, "file_type", v->info->file_type);
    add_number(&out, "parameters", v->info->n_params);
    add_number(&out, "context", v->max_context);
    add_text(&out, "device", v->info->device.text);
    add_text(&out, "kv_dtype", types);
    add_number(&out, "kv_block_tokens", v->kv.layout.n_slots);
    add_number(&out, "kv_blocks", p.blocks[0]);
    add_number(&out, "kv_bytes", p.bytes[0]);
    add_number(&out, "ram_bytes", p.bytes[1]);
    add_number(&out, "spill_bytes", p.bytes[2]);
    add_number(&out, "max_running", (uint64_t)v->set->sched_max_running);
    buf_printf(&out, ",\"chat\":%s", v->tmpl ? "true" : "false");
    add_text(&out, "url", url);
    buf_add_char(&out, '}');
    puts(out.ptr);
    buf_release(&out);
    buf_release(&message);
}

void banner_print(const struct server *srv, const struct service *v, const char *version,
                  bool needs_key)
{
    struct buf url = {0};
    add_url(&url, srv);
    if (v->set->log_format == SET_LOG_JSON)
        print_json(v, version, url.ptr);
    else
        print_text(v, version, url.ptr, needs_key);
    fflush(stdout);
    buf_release(&url);
}
