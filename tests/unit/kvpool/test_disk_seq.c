/* kvpool/disk_seq: sequences with first blocks from the disk hold the same content as computed ones,
 * whatever fails, and windows need only the blocks that rows see. A block's bytes represent the hash of the
 * tokens up to its end. */
#include "kvpool/cache_int.h"
#include "kvpool/kvpool_test.h"
#include "base/base_test.h"
#include "kvpool/disk_seq.h"
#include "tests/unit/kvpool/disk_rig.h"

enum {
    N_FRAMES = N_STORE_FRAMES,
    MAX_TOKENS = 128,
    N_SLOTS = N_BLOCK_TOKENS,
    CHUNK = 24,
    N_BUFFERS = 3
};

struct shop {
    struct rig r;
    struct kv_cache *cache;
    struct kv_saver *saver;
    struct kv_shelf shelf;
    uint32_t n_computed, n_fetched, n_adopted; /* positions, over all requests */
};

static void shop_open(struct shop *s)
{
    struct err e;
    struct kv_options o = {.layout = &s->r.layout,
                           .n_frames = {N_FRAMES, N_FRAMES},
                           .max_jobs = 4,
                           .max_pending = 16,
                           .prefix = true};
    rig_open(&s->r);
    kv_disk_secret(s->r.disk, o.secret);
    s->cache = kv_cache_new(&o);
    s->shelf = (struct kv_shelf){s->r.disk, s->cache, &s->r.store.store};
    ck_assert_int_eq(kv_saver_new(&s->shelf, &s->r.layout, N_BUFFERS, &s->saver, &e), OK);
}

static void shop_init(struct shop *s)
{
    *s = (struct shop){0};
    rig_init(&s->r);
    shop_open(s);
}

static void shop_close(struct shop *s)
{
    kv_disk_stop(s->r.disk);
    kv_saver_free(s->saver);
    kv_cache_free(s->cache);
    kv_disk_close(s->r.disk);
    s->r.disk = NULL;
}

static void shop_restart(struct shop *s)
{
    shop_close(s);
    memset(s->r.store.bytes, 0xee, (size_t)KV_MAX_GROUPS * PLAIN_MAX_BLOCKS * PLAIN_STRIDE);
    shop_open(s);
}

static void shop_release(struct shop *s)
{
    shop_close(s);
    rig_release(&s->r);
}

static void audit(struct shop *s)
{
    struct err e = {0};
    if (kv_cache_audit(s->cache, &e) != OK)
        ck_abort_msg("%s", e.text);
}

/* Stands for the content of block i of a group after those tokens. */
static uint64_t content(const int32_t *tokens, uint32_t i)
{
    uint64_t h = 14695981039346656037u;
    for (uint32_t p = 0; p < (i + 1) * N_SLOTS; p++)
        h = (h ^ (uint32_t)tokens[p]) * 1099511628211u;
    return h;
}

static void compute_block(struct shop *s, const struct kv_seq *q, const int32_t *tokens, uint32_t i)
{
    for (uint32_t g = 0; g < 2; g++)
        fill(&s->r, plain_block(&s->r.store, g, q->t[g].phys[i]), g, content(tokens, i));
}

/* Every full block that q holds has the bytes that computing gives. */
static void check_blocks(struct shop *s, const struct kv_seq *q, const int32_t *tokens)
{
    for (uint32_t g = 0; g < 2; g++) {
        for (uint32_t i = q->t[g].first; i < q->n_retired / N_SLOTS; i++)
            EXPECT(
                holds(&s->r, plain_block(&s->r.store, g, q->t[g].phys[i]), g, content(tokens, i)));
    }
}

static void answer_all(struct shop *s, struct kv_fetch *f)
{
    struct kv_disk_done done;
    while (kv_disk_step(s->r.disk))
        continue;
    while (kv_disk_pop(s->r.disk, &done)) {
        if (done.get)
            kv_fetch_done(f, &done);
        else
            kv_save_done(s->saver, &done);
    }
}

static struct kv_key root_of(struct shop *s, const char *salt)
{
    struct kv_domain d = {
        .rope = "", .adapter = "", .salt = salt, .n_salt_bytes = (uint32_t)strlen(salt)};
    return kv_root(s->cache, &d);
}

static enum kv_fetch_state fetch(struct shop *s, struct kv_seq *q, const int32_t *tokens,
                                 uint32_t n, int cancel_after)
{
    struct kv_fetch f;
    uint32_t end = kv_fetch_match(&s->shelf, q, tokens, n - 1), before = q->n_tokens;
    if (end == before)
        return KV_FETCH_DONE;
    enum kv_fetch_state state;
    kv_fetch_start(&f, &s->shelf, q, tokens, end, 42);
    while ((state = kv_fetch_go(&f, &s->shelf, q, tokens, CHUNK)) == KV_FETCH_WAITS) {
        audit(s);
        if (cancel_after-- == 0)
            kv_fetch_cancel(&f);
        if (f.failed && f.n_out > 0) /* frames that gets may yet write are not let go */
            EXPECT(kv_fetch_go(&f, &s->shelf, q, tokens, CHUNK) == KV_FETCH_WAITS);
        answer_all(s, &f);
    }
    audit(s);
    EXPECT(f.n_out == 0);
    if (state == KV_FETCH_DONE) {
        EXPECT(q->n_retired == end && q->publishes);
        s->n_fetched += end - before;
        check_blocks(s, q, tokens);
    }
    return state;
}

static void compute_rest(struct shop *s, struct kv_seq *q, const int32_t *tokens, uint32_t n)
{
    while (q->n_tokens < n) {
        struct kv_copy copy[KV_MAX_GROUPS];
        uint32_t n_copies = 0, rows = n - q->n_tokens < CHUNK ? n - q->n_tokens : CHUNK;
        uint32_t from = q->n_tokens / N_SLOTS;
        EXPECT(kv_seq_grow(s->cache, q, rows, copy, &n_copies) && n_copies == 0);
        for (uint32_t i = from; i < q->n_tokens / N_SLOTS; i++)
            compute_block(s, q, tokens, i);
        kv_seq_retire(s->cache, q, tokens, true);
        s->n_computed += rows;
    }
}

/* A request from admission to its end. save: how many of its blocks are saved. */
static void serve(struct shop *s, const char *salt, const int32_t *tokens, uint32_t n,
                  uint32_t n_save, int cancel_after)
{
    struct kv_seq q;
    struct kv_save at = {0};
    kv_seq_init(s->cache, &q, MAX_TOKENS, root_of(s, salt));
    s->n_adopted += kv_seq_adopt(s->cache, &q, tokens, n - 1);
    EXPECT(kv_seq_unpark(s->cache, &q) && kv_seq_resident(&q));
    if (fetch(s, &q, tokens, n, cancel_after) != KV_FETCH_DONE) {
        kv_seq_drop(s->cache, &q);
        audit(s);
        s->n_adopted += kv_seq_adopt(s->cache, &q, tokens, n - 1);
        EXPECT(kv_seq_unpark(s->cache, &q));
    }
    compute_rest(s, &q, tokens, n);
    check_blocks(s, &q, tokens);
    while (n_save > 0) {
        uint32_t n_now = kv_save_some(s->saver, &at, q.root, tokens, n, n_save);
        n_save -= n_now;
        answer_all(s, NULL);
        if (n_now == 0)
            break;
    }
    kv_seq_drop(s->cache, &q);
    kv_seq_release(s->cache, &q);
    audit(s);
}

static void make_prompt(int32_t *tokens, uint64_t seed)
{
    for (int i = 0; i < MAX_TOKENS; i++)
        tokens[i] = (int32_t)(seed * 1000 + (uint64_t)i);
}

START_TEST(after_a_restart_a_saved_prefix_is_fetched_and_not_computed)
{
    struct shop s;
    int32_t tokens[MAX_TOKENS];
    make_prompt(tokens, 1);
    shop_init(&s);
    serve(&s, "a", tokens, 100, 100, -1);
    ck_assert_uint_eq(s.n_computed, 100);
    shop_restart(&s);
    s.n_computed = 0;
    serve(&s, "a", tokens, 100, 0, -1);
    ck_assert_uint_eq(s.n_fetched, 96); /* whole blocks of the first 99 */
    ck_assert_uint_eq(s.n_computed, 4);
    serve(&s, "a", tokens, 98, 0, -1); /* and it was published */
    ck_assert_uint_eq(s.n_adopted, 96);
    ck_assert_uint_eq(s.n_fetched, 96);
    shop_release(&s);
}
END_TEST

START_TEST(another_salt_or_other_tokens_fetch_nothing_of_it)
{
    struct shop s;
    int32_t tokens[MAX_TOKENS];
    make_prompt(tokens, 1);
    shop_init(&s);
    serve(&s, "a", tokens, 100, 100, -1);
    shop_restart(&s);
    serve(&s, "b", tokens, 100, 0, -1);
    ck_assert_uint_eq(s.n_fetched, 0);
    tokens[50]++;
    serve(&s, "a", tokens, 100, 0, -1);
    ck_assert_uint_eq(s.n_fetched, 48);
    shop_release(&s);
}
END_TEST

static const char *path_of_block(struct shop *s, const int32_t *tokens, uint32_t group, uint32_t i)
{
    static char path[256];
    char name[DISK_NAME_BYTES];
    struct kv_key keys[MAX_TOKENS / N_SLOTS];
    ck_assert_uint_gt(kv_chain_keys(s->cache, root_of(s, "a"), tokens, MAX_TOKENS, keys), i);
    disk_name(name, kv_disk_domain(s->r.disk), group, &keys[i]);
    snprintf(path, sizeof(path), "%s/kv/blocks/%s", s->r.folder, name);
    return path;
}

START_TEST(of_a_window_only_what_rows_see_is_needed)
{
    struct shop s;
    int32_t tokens[MAX_TOKENS];
    make_prompt(tokens, 1);
    shop_init(&s);
    serve(&s, "a", tokens, 100, 100, -1);
    /* Rows from 96 on see 15 positions before: the blocks of 80 and 88 (window 16). */
    for (uint32_t i = 0; i < 10; i++)
        ck_assert_int_eq(unlink(path_of_block(&s, tokens, 1, i)), 0);
    shop_restart(&s);
    serve(&s, "a", tokens, 100, 0, -1);
    ck_assert_uint_eq(s.n_fetched, 96);
    ck_assert_uint_eq(kv_disk_stats(s.r.disk).n_got, 12 + 2);
    shop_restart(&s);
    s.n_fetched = 0;
    serve(&s, "a", tokens, 96, 0, -1); /* 88 positions would need the block of 72 */
    ck_assert_uint_eq(s.n_fetched, 0);
    ck_assert_uint_eq(kv_disk_stats(s.r.disk).n_got, 0);
    ck_assert_int_eq(unlink(path_of_block(&s, tokens, 0, 5)), 0);
    shop_restart(&s);
    serve(&s, "a", tokens, 100, 0, -1); /* of full attention everything is needed */
    ck_assert_uint_eq(s.n_fetched, 0);
    shop_release(&s);
}
END_TEST

START_TEST(a_fetch_that_fails_or_is_cancelled_is_computed_instead)
{
    struct shop s;
    int32_t tokens[MAX_TOKENS];
    make_prompt(tokens, 1);
    shop_init(&s);
    for (int what = 0; what < 8; what++) {
        serve(&s, "a", tokens, 100, 100, -1);
        shop_restart(&s);
        s.n_computed = 0;
        if (what < 4) /* a file goes bad: of the first, a middle, the last growth */
            ck_assert_int_eq(truncate(path_of_block(&s, tokens, 0, (uint32_t)what * 11 / 3), 9), 0);
        serve(&s, "a", tokens, 100, 0, what < 4 ? -1 : what - 4);
        ck_assert_uint_eq(s.n_computed, 100);
        shop_restart(&s);
    }
    shop_release(&s);
}
END_TEST

START_TEST(a_fetch_without_frames_says_so_and_can_go_on_or_end)
{
    struct shop s;
    struct kv_seq q, other;
    struct kv_fetch f;
    struct kv_copy copy[KV_MAX_GROUPS];
    uint32_t n_copies = 0;
    int32_t tokens[MAX_TOKENS], others[MAX_TOKENS];
    make_prompt(tokens, 1);
    make_prompt(others, 2);
    shop_init(&s);
    serve(&s, "a", tokens, 100, 100, -1);
    shop_restart(&s);
    kv_seq_init(s.cache, &other, MAX_TOKENS, root_of(&s, "a"));
    ck_assert(kv_seq_unpark(s.cache, &other));
    ck_assert(kv_seq_grow(s.cache, &other, 8 * (N_FRAMES - 8), copy, &n_copies));
    kv_seq_init(s.cache, &q, MAX_TOKENS, root_of(&s, "a"));
    ck_assert(kv_seq_unpark(s.cache, &q));
    kv_fetch_start(&f, &s.shelf, &q, tokens, 96, 1);
    enum kv_fetch_state state;
    while ((state = kv_fetch_go(&f, &s.shelf, &q, tokens, CHUNK)) == KV_FETCH_WAITS)
        answer_all(&s, &f);
    ck_assert_int_eq(state, KV_FETCH_NO_FRAMES);
    ck_assert_uint_eq(q.n_retired, 48);
    audit(&s);
    kv_seq_undo(s.cache, &other);
    kv_seq_drop(s.cache, &other);
    kv_seq_release(s.cache, &other);
    while ((state = kv_fetch_go(&f, &s.shelf, &q, tokens, CHUNK)) == KV_FETCH_WAITS)
        answer_all(&s, &f);
    ck_assert_int_eq(state, KV_FETCH_DONE);
    check_blocks(&s, &q, tokens);
    kv_seq_drop(s.cache, &q);
    kv_seq_release(s.cache, &q);
    shop_release(&s);
}
END_TEST

START_TEST(saving_goes_on_where_it_stopped_and_skips_what_is_there)
{
    struct shop s;
    struct kv_save at = {0};
    int32_t tokens[MAX_TOKENS];
    make_prompt(tokens, 1);
    shop_init(&s);
    serve(&s, "a", tokens, 100, 5, -1);
    ck_assert_uint_eq(kv_disk_stats(s.r.disk).n_put, 5);
    struct kv_key root = root_of(&s, "a");
    ck_assert_uint_eq(kv_save_some(s.saver, &at, root, tokens, 100, 2), 2);
    ck_assert_uint_eq(kv_save_some(s.saver, &at, root, tokens, 100, 9), N_BUFFERS - 2);
    ck_assert_uint_eq(kv_save_some(s.saver, &at, root, tokens, 100, 9), 0); /* no buffer is free */
    do
        answer_all(&s, NULL);
    while (kv_save_some(s.saver, &at, root, tokens, 100, 9) > 0);
    ck_assert_uint_eq(at.next, 12);
    ck_assert_uint_eq(kv_disk_stats(s.r.disk).n_blocks, 24);
    shop_release(&s);
}
END_TEST

/* Families of prompts that share beginnings, tiny arena and disk, restarts, files that go bad, cancels. */
START_TEST(random_requests_always_hold_the_right_bytes)
{
    struct shop s;
    uint64_t state = 5;
    shop_init(&s);
    uint64_t blocks = disk_file_bytes(s.r.disk, 0) + disk_file_bytes(s.r.disk, 1);
    s.r.o.max_bytes = 40 * blocks;
    shop_restart(&s);
    for (int k = 0; k < 1500; k++) {
        int32_t tokens[MAX_TOKENS];
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        make_prompt(tokens, 1 + state % 3);
        uint32_t n = 2 + (state >> 8) % (MAX_TOKENS - 2), fork = (state >> 16) % MAX_TOKENS;
        for (uint32_t i = fork; i < MAX_TOKENS; i++)
            tokens[i] += 100000 * (int32_t)((state >> 24) % 3);
        if ((state >> 30) % 8 == 0)
            shop_restart(&s);
        if ((state >> 36) % 8 == 0)
            truncate(path_of_block(&s, tokens, (state >> 33) & 1, (state >> 44) % 16), 100);
        serve(&s, (state >> 40) % 4 ? "a" : "b", tokens, n, (state >> 50) % 8,
              (state >> 54) % 8 == 0 ? (int)((state >> 57) % 4) : -1);
        EXPECT(kv_disk_stats(s.r.disk).n_bytes <= s.r.o.max_bytes);
    }
    ck_assert_uint_gt(s.n_fetched, 2000);
    ck_assert_uint_gt(s.n_adopted, 2000);
    ck_assert_uint_gt(s.n_computed, 2000);
    shop_release(&s);
}
END_TEST

START_TEST(fetching_and_saving_allocate_nothing)
{
    struct shop s;
    int32_t tokens[MAX_TOKENS];
    struct kv_fetch f;
    struct kv_seq q;
    make_prompt(tokens, 1);
    shop_init(&s);
    serve(&s, "a", tokens, 100, 100, -1);
    shop_restart(&s);
    kv_seq_init(s.cache, &q, MAX_TOKENS, root_of(&s, "a"));
    ck_assert(kv_seq_unpark(s.cache, &q));
    uint64_t n_before = mem_thread_allocs();
    uint32_t end = kv_fetch_match(&s.shelf, &q, tokens, 99);
    kv_fetch_start(&f, &s.shelf, &q, tokens, end, 1);
    while (kv_fetch_go(&f, &s.shelf, &q, tokens, CHUNK) == KV_FETCH_WAITS)
        answer_all(&s, &f);
    struct kv_save at = {0};
    kv_save_some(s.saver, &at, q.root, tokens, 96, 3);
    ck_assert_uint_eq(mem_thread_allocs(), n_before);
    kv_seq_drop(s.cache, &q);
    kv_seq_release(s.cache, &q);
    shop_release(&s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("disk_seq");
    TCase *t = tcase_create("disk_seq");
    tcase_add_test(t, after_a_restart_a_saved_prefix_is_fetched_and_not_computed);
    tcase_add_test(t, another_salt_or_other_tokens_fetch_nothing_of_it);
    tcase_add_test(t, of_a_window_only_what_rows_see_is_needed);
    tcase_add_test(t, a_fetch_that_fails_or_is_cancelled_is_computed_instead);
    tcase_add_test(t, a_fetch_without_frames_says_so_and_can_go_on_or_end);
    tcase_add_test(t, saving_goes_on_where_it_stopped_and_skips_what_is_there);
    tcase_add_test(t, random_requests_always_hold_the_right_bytes);
    tcase_add_test(t, fetching_and_saving_allocate_nothing);
    suite_add_tcase(s, t);
    return run_suite(s);
}
