/* sample_rows LOGITS N_VOCAB: samples rows of a file of raw f32 as requested by lines on stdin, and answers
 * each with one line of JSON. A line holds key=value words:
 *   row temperature top_k top_p min_p presence frequency repetition seed choice n_top given n_prompt
 *   history=ID,ID  bias=ID:VALUE,ID:VALUE  ban=ID,ID  allowed=ID,ID  bad=N,ID,..,N,ID,..
 *   dry_multiplier dry_base dry_allowed dry_last_n breakers=ID,ID
 *   draws=N  that many draws with seeds seed, seed + 1, ...    kept=1  also the tokens left to draw from
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/settings.h"
#include "engine/cpu/levels.h"
#include "engine/sample/kept.h"

enum { LINE_CAP = 1 << 20, MAX_LIST = 1 << 16 };

struct order {
    struct sampling_params p;
    struct sample_job job;
    uint64_t row;
    uint32_t draws;
    bool kept;
    int32_t *history, *ban, *allowed, *bad;
    uint32_t *breakers;
    struct logit_bias *bias;
};

static uint32_t read_ids(const char *text, int32_t *id)
{
    uint32_t n = 0;
    char *end;
    while (*text && n < MAX_LIST) {
        id[n++] = (int32_t)strtol(text, &end, 10);
        text = *end == ',' ? end + 1 : end;
    }
    return n;
}

static uint32_t read_bias(const char *text, struct logit_bias *bias)
{
    uint32_t n = 0;
    char *end;
    while (*text && n < MAX_LIST) {
        bias[n].token = (int32_t)strtol(text, &end, 10);
        bias[n++].bias = strtof(end + 1, &end);
        text = *end == ',' ? end + 1 : end;
    }
    return n;
}

static void set_list(struct order *o, const char *key, const char *value)
{
    if (strcmp(key, "history") == 0)
        o->job.n_history = read_ids(value, o->history);
    else if (strcmp(key, "ban") == 0)
        o->job.n_ban = read_ids(value, o->ban);
    else if (strcmp(key, "bad") == 0)
        o->p.n_bad = read_ids(value, o->bad);
    else if (strcmp(key, "allowed") == 0) {
        o->p.n_allowed = read_ids(value, o->allowed);
        o->p.allowed = o->allowed;
    } else if (strcmp(key, "breakers") == 0) {
        uint32_t n = read_ids(value, o->ban);
        for (uint32_t i = 0; i < n; i++)
            o->breakers[o->ban[i] / 32] |= 1u << o->ban[i] % 32;
    } else if (strcmp(key, "bias") == 0)
        o->p.n_bias = read_bias(value, o->bias);
    else
        fprintf(stderr, "unknown key %s\n", key);
}

static void set(struct order *o, const char *key, const char *value)
{
    struct {
        const char *key;
        float *f;
    } floats[] = {{"temperature", &o->p.temperature},
                  {"top_p", &o->p.top_p},
                  {"min_p", &o->p.min_p},
                  {"presence", &o->p.presence_penalty},
                  {"frequency", &o->p.frequency_penalty},
                  {"repetition", &o->p.repetition_penalty},
                  {"top_n_sigma", &o->p.top_n_sigma},
                  {"typical_p", &o->p.typical_p},
                  {"xtc_probability", &o->p.xtc_probability},
                  {"xtc_threshold", &o->p.xtc_threshold},
                  {"dry_multiplier", &o->p.dry_multiplier},
                  {"dry_base", &o->p.dry_base}};
    struct {
        const char *key;
        void *p;
    } ints[] = {{"top_k", &o->p.top_k},
                {"n_top", &o->p.n_top},
                {"draws", &o->draws},
                {"given", &o->job.given},
                {"n_prompt", &o->job.n_prompt},
                {"choice", &o->job.choice},
                {"last_n", &o->p.penalty_last_n},
                {"dry_allowed", &o->p.dry_allowed_length},
                {"dry_last_n", &o->p.dry_last_n}};
    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++)
        if (strcmp(key, floats[i].key) == 0) {
            *floats[i].f = strtof(value, NULL);
            return;
        }
    for (size_t i = 0; i < sizeof(ints) / sizeof(ints[0]); i++)
        if (strcmp(key, ints[i].key) == 0) {
            *(uint32_t *)ints[i].p = (uint32_t)strtol(value, NULL, 10);
            return;
        }
    if (strcmp(key, "seed") == 0)
        o->p.seed = strtoull(value, NULL, 10);
    else if (strcmp(key, "row") == 0)
        o->row = strtoull(value, NULL, 10);
    else if (strcmp(key, "kept") == 0)
        o->kept = *value == '1';
    else
        set_list(o, key, value);
}

static void read_order(struct order *o, char *line)
{
    o->p = (struct sampling_params){.temperature = 1,
                                    .top_p = 1,
                                    .repetition_penalty = 1,
                                    .n_top = -1,
                                    .bias = o->bias,
                                    .bad = o->bad,
                                    .dry_breakers = o->breakers};
    memset(o->breakers, 0, MAX_LIST / 32 * sizeof(*o->breakers));
    o->job =
        (struct sample_job){.params = &o->p, .history = o->history, .ban = o->ban, .given = -1};
    o->row = 0;
    o->draws = 1;
    o->kept = false;
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
        char *value = strchr(word, '=');
        if (!value)
            continue;
        *value++ = 0;
        set(o, word, value);
    }
}

static void answer(struct order *o, const float *x, uint32_t n, struct sample_scratch *s)
{
    printf("{\"tokens\":[");
    for (uint32_t i = 0; i < o->draws; i++) {
        sample_run(&o->job, x, n, s);
        printf("%s%d", i ? "," : "", o->job.token);
        o->p.seed++;
    }
    printf("],\"logprob\":%.9g,\"top\":[",
           isfinite(o->job.logprob) ? (double)o->job.logprob : -1e30);
    for (uint32_t i = 0; i < o->job.n_top; i++)
        printf("%s[%d,%.9g]", i ? "," : "", o->job.top_token[i],
               isfinite(o->job.top_logprob[i]) ? (double)o->job.top_logprob[i] : -1e30);
    printf("]");
    if (o->kept) {
        const uint32_t *id;
        const float *p;
        uint32_t n_kept = sample_kept(&o->job, x, n, s, &id, &p);
        printf(",\"kept\":[");
        for (uint32_t i = 0; i < n_kept; i++)
            printf("%s[%u,%.9g]", i ? "," : "", id[i], (double)p[i]);
        printf("]");
    }
    printf("}\n");
}

static float *read_rows(const char *path, uint32_t n, uint64_t *n_rows)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    size_t n_bytes = (size_t)ftell(f);
    rewind(f);
    float *x = mem_alloc(n_bytes);
    *n_rows = fread(x, sizeof(float), n_bytes / sizeof(float), f) / n;
    fclose(f);
    return x;
}

int main(int argc, char **argv)
{
    uint32_t n = argc == 3 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    uint64_t n_rows = 0;
    float *x = n ? read_rows(argv[1], n, &n_rows) : NULL;
    if (!x || !n_rows) {
        fprintf(stderr, "usage: sample_rows LOGITS N_VOCAB\n");
        return 2;
    }
    const struct kernels *k;
    struct err e;
    if (levels_choose(SET_ISA_AUTO, &k, &e) != OK)
        return 1;
    struct sample_scratch *s = sample_scratch_new(n, k->row);
    struct order o = {.history = mem_alloc(MAX_LIST * sizeof(int32_t)),
                      .ban = mem_alloc(MAX_LIST * sizeof(int32_t)),
                      .allowed = mem_alloc(MAX_LIST * sizeof(int32_t)),
                      .bad = mem_alloc(MAX_LIST * sizeof(int32_t)),
                      .breakers = mem_alloc(MAX_LIST / 32 * sizeof(uint32_t)),
                      .bias = mem_alloc(MAX_LIST * sizeof(struct logit_bias))};
    char *line = mem_alloc(LINE_CAP);
    while (fgets(line, LINE_CAP, stdin)) {
        read_order(&o, line);
        answer(&o, x + o.row % n_rows * n, n, s);
        fflush(stdout);
    }
    mem_free(line);
    mem_free(o.history);
    mem_free(o.ban);
    mem_free(o.allowed);
    mem_free(o.bad);
    mem_free(o.breakers);
    mem_free(o.bias);
    mem_free(x);
    sample_scratch_free(s);
    return 0;
}
