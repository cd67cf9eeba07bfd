/* Cost of the KV cache's books. Only prints; no time fails it.
 *
 *   bench_cache [rounds]
 *
 * Hashing a prompt's keys, beside a plain SipHash over one long message and a memcpy of the same tokens;
 * admission of a 1,024-token prompt whose first half is cached (look, adopt, grow, retire with
 * publishing) and its release; a step of 256 decoding sequences with the prefix cache on and off. CPU
 * time of the thread, so that other load on the machine does not count. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "kvpool/kvpool_test.h"
#include "base/siphash.h"
#include "kvpool/cache_int.h"
#include "tests/bench/bench_times.h"

enum { N_SLOTS = 16, PROMPT = 1024, SHARED = 512, N_RUNNING = 256, MAX_ROUNDS = 20000 };

static uint64_t took[MAX_ROUNDS], took_end[MAX_ROUNDS];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct kv_cache *make(struct kv_layout *l, uint32_t n_groups, bool prefix)
{
    struct kv_options o = {.layout = l,
                           .max_jobs = 16,
                           .max_pending = 4096,
                           .prefix = prefix,
                           .secret = {0x0123456789abcdefu, 0xfedcba9876543210u}};
    *l = (struct kv_layout){.n_layers = 2, .n_groups = n_groups, .n_slots = N_SLOTS};
    l->group[1].window = n_groups > 1 ? 512 : 0;
    for (uint32_t k = 0; k < n_groups; k++)
        o.n_frames[k] = o.n_host[k] = 16384;
    return kv_cache_new(&o);
}

static struct kv_key root_of(const struct kv_cache *c)
{
    struct kv_domain d = {.rope = "", .adapter = "", .salt = ""};
    return kv_root(c, &d);
}

/* ---- hashing ---- */

static void bench_hash(void)
{
    enum { TOKENS = 1 << 16, TIMES = 40 };
    struct kv_layout l;
    struct kv_cache *c = make(&l, 1, true);
    int32_t *tokens = mem_alloc(TOKENS * sizeof(*tokens)), *to = mem_alloc(TOKENS * sizeof(*to));
    struct kv_key key = root_of(c);
    uint64_t out[2], best[3] = {UINT64_MAX, UINT64_MAX, UINT64_MAX}, seen = 0;
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = i * 7919 % 49152;
    for (int round = 0; round < TIMES; round++) {
        uint64_t t[4];
        t[0] = now_ns();
        for (int i = 0; i < TOKENS; i += N_SLOTS)
            key = kvc_chain(c, key, tokens + i);
        t[1] = now_ns();
        siphash_128(c->secret, tokens, TOKENS * sizeof(*tokens), out);
        t[2] = now_ns();
        for (int i = 0; i < TOKENS; i += N_SLOTS)
            memcpy(to + i, tokens + i, N_SLOTS * sizeof(*tokens));
        t[3] = now_ns();
        seen += key.w[0] ^ out[0] ^ (uint64_t)to[round];
        for (int k = 0; k < 3; k++)
            best[k] = t[k + 1] - t[k] < best[k] ? t[k + 1] - t[k] : best[k];
    }
    printf("hashing, ns a token (best of %d; %llx)\n", TIMES, (unsigned long long)seen & 0xf);
    printf("  chain keys of 16-token blocks            %6.3f\n", (double)best[0] / TOKENS);
    printf("  SipHash-2-4-128 of one long message      %6.3f\n", (double)best[1] / TOKENS);
    printf("  memcpy of 16-token blocks                %6.3f\n", (double)best[2] / TOKENS);
    mem_free(tokens);
    mem_free(to);
    kv_cache_free(c);
}

/* ---- admission ---- */

static void admit(struct kv_cache *c, struct kv_seq *s, const int32_t *tokens)
{
    struct kv_copy copy[KV_MAX_GROUPS];
    uint32_t n_copies = 0;
    uint32_t n_match = kv_match(c, s->root, tokens, PROMPT - 1);
    CHECK(kv_seq_adopt(c, s, tokens, PROMPT - 1) == n_match);
    CHECK(kv_seq_unpark(c, s));
    CHECK(kv_seq_grow(c, s, PROMPT - s->n_tokens, copy, &n_copies));
    kv_seq_retire(c, s, tokens, true);
}

static void bench_admission(uint32_t n_groups, uint32_t n)
{
    struct kv_layout l;
    struct kv_cache *c = make(&l, n_groups, true);
    static int32_t tokens[PROMPT];
    struct kv_seq s;
    kv_seq_init(c, &s, PROMPT, root_of(c));
    for (uint32_t i = 0; i < PROMPT; i++)
        tokens[i] = (int32_t)i;
    admit(c, &s, tokens);
    kv_seq_drop(c, &s);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t p = SHARED; p < PROMPT; p++)
            tokens[p] = (int32_t)(p * (i + 2));
        uint64_t t0 = now_ns();
        admit(c, &s, tokens);
        took[i] = now_ns() - t0;
        CHECK(s.n_hit == SHARED);
        t0 = now_ns();
        kv_seq_drop(c, &s);
        took_end[i] = now_ns() - t0;
    }
    printf("a prompt of 1,024 tokens, 512 cached, %u group%s\n", n_groups, n_groups > 1 ? "s" : "");
    print_times("look, adopt, grow, retire and publish", took, n);
    print_times("release", took_end, n);
    kv_seq_release(c, &s);
    kv_prefix_clear(c);
    kv_cache_free(c);
}

/* ---- decoding ---- */

static void bench_decode(bool prefix, uint32_t n)
{
    struct kv_layout l;
    struct kv_cache *c = make(&l, 1, prefix);
    struct kv_seq *s = mem_alloc(N_RUNNING * sizeof(*s));
    uint32_t n_steps = n < 512 ? n : 512;
    int32_t *tokens = mem_zalloc(N_RUNNING * (PROMPT + 16) * sizeof(*tokens));
    struct kv_copy copy[KV_MAX_GROUPS];
    for (uint32_t i = 0; i < N_RUNNING; i++) {
        kv_seq_init(c, &s[i], PROMPT, root_of(c));
        CHECK(kv_seq_unpark(c, &s[i]));
        tokens[i * PROMPT] = (int32_t)i;
    }
    for (uint32_t k = 0; k < n_steps; k++) {
        uint64_t t0 = now_ns();
        for (uint32_t i = 0; i < N_RUNNING; i++) {
            uint32_t n_copies = 0;
            CHECK(kv_seq_grow(c, &s[i], 1, copy, &n_copies));
        }
        for (uint32_t i = 0; i < N_RUNNING; i++)
            kv_seq_retire(c, &s[i], tokens + i * PROMPT, true);
        took[k] = now_ns() - t0;
    }
    print_times(prefix ? "prefix cache on, nothing hit" : "prefix cache off", took, n_steps);
    for (uint32_t i = 0; i < N_RUNNING; i++) {
        kv_seq_drop(c, &s[i]);
        kv_seq_release(c, &s[i]);
    }
    mem_free(s);
    mem_free(tokens);
    kv_prefix_clear(c);
    kv_cache_free(c);
}

int main(int argc, char **argv)
{
    uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2000;
    if (n < 1 || n > MAX_ROUNDS)
        n = 2000;
    bench_hash();
    bench_admission(1, n);
    bench_admission(2, n);
    printf("growing and retiring a step of %d decoding sequences\n", N_RUNNING);
    bench_decode(false, n);
    bench_decode(true, n);
    return 0;
}
