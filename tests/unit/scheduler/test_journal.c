/* The step journal: the ring, its text form and back, fingerprints, the scheduler's entries. */
#include "base/buf.h"
#include "base/base_test.h"
#include "tests/unit/scheduler/rig.h"

START_TEST(the_ring_keeps_the_newest_records)
{
    struct journal j;
    struct journal_record got[8];
    uint64_t n_all;
    journal_init(&j, 5 * sizeof(struct journal_record) + 63);
    ck_assert_uint_eq(j.cap, 5);
    ck_assert_uint_eq(journal_copy(&j, 0, got, 8, &n_all), 0);
    ck_assert_uint_eq(n_all, 0);
    for (uint32_t i = 0; i < 12; i++)
        journal_put(&j, JOURNAL_STEP, i);
    ck_assert_uint_eq(journal_copy(&j, 0, got, 8, &n_all), 5);
    ck_assert_uint_eq(n_all, 5);
    for (uint32_t i = 0; i < 5; i++)
        ck_assert_uint_eq(got[i].at_ns, 7 + i);
    ck_assert_uint_eq(journal_copy(&j, 3, got, 8, &n_all), 2);
    ck_assert_uint_eq(got[0].at_ns, 10);
    ck_assert_uint_eq(journal_copy(&j, 9, got, 8, &n_all), 0);
    journal_release(&j);
}
END_TEST

START_TEST(a_journal_of_no_bytes_takes_nothing)
{
    struct journal j;
    uint32_t print[1] = {7};
    journal_init(&j, sizeof(struct journal_record) - 1);
    ck_assert_ptr_null(journal_put(&j, JOURNAL_END, 1));
    journal_prompt(&j, 1, 1, print, 1);
    ck_assert_uint_eq(j.n, 0);
    journal_release(&j);
}
END_TEST

static uint32_t print_of(uint64_t secret, const int32_t *tokens, uint32_t n, uint32_t n_slots,
                         uint32_t *print, uint32_t cap)
{
    return journal_fingerprint(&secret, tokens, n, n_slots, print, cap);
}

START_TEST(fingerprints_follow_the_prefix)
{
    enum { N = 160, SLOTS = 16 };
    int32_t a[N], b[N];
    uint32_t pa[N / SLOTS], pb[N / SLOTS];
    uint64_t state;
    for (int i = 0; i < N; i++)
        a[i] = b[i] = i * 31 % 1000;
    for (uint32_t at = 0; at < N; at++) {
        b[at] = a[at] + 1;
        ck_assert_uint_eq(print_of(5, a, N, SLOTS, pa, N / SLOTS), N / SLOTS);
        ck_assert_uint_eq(print_of(5, b, N, SLOTS, pb, N / SLOTS), N / SLOTS);
        for (uint32_t i = 0; i < N / SLOTS; i++) {
            EXPECT((pa[i] == pb[i]) == (i < at / SLOTS));
            EXPECT(pa[i] != 0);
        }
        b[at] = a[at];
    }
    ck_assert_uint_eq(print_of(6, a, N, SLOTS, pb, N / SLOTS), N / SLOTS);
    ck_assert_uint_ne(pa[0], pb[0]); /* another process */
    ck_assert_uint_eq(print_of(5, a, SLOTS - 1, SLOTS, pb, N / SLOTS), 0);
    ck_assert_uint_eq(print_of(5, a, N, SLOTS, pb, 3), 3);
    state = 5;
    ck_assert_uint_eq(journal_fingerprint(&state, a, 70, SLOTS, pb, N), 4);
    ck_assert_uint_eq(journal_fingerprint(&state, a + 64, N - 64, SLOTS, pb + 4, N), 6);
    ck_assert_int_eq(memcmp(pa, pb, sizeof(pa)), 0);
}
END_TEST

static struct str line_of(const struct buf *text)
{
    return (struct str){text->ptr, text->len - 1};
}

/* Random bytes in the members of a kind survive the text. */
START_TEST(every_record_reads_back_as_it_was_written)
{
    srand(11);
    for (int round = 0; round < 2000; round++) {
        struct journal_record in, out;
        struct journal_config c = {0};
        struct err e;
        struct buf text = {0};
        memset(&in, 0, sizeof(in));
        in.kind = (uint8_t)(JOURNAL_SUBMIT + rand() % (N_JOURNAL_KINDS - JOURNAL_SUBMIT));
        in.at_ns = (uint64_t)rand() << 32 | (uint32_t)rand();
        in.request = (uint32_t)rand() * 2;
        if (in.kind == JOURNAL_SUBMIT) {
            in.n_choices = (uint16_t)rand();
            in.u.submit.n_prompt = (uint32_t)rand() * 2;
            in.u.submit.priority = rand() - RAND_MAX / 2;
            in.u.submit.tenant = (uint32_t)rand();
        } else if (in.kind == JOURNAL_PROMPT) {
            for (int i = 0, n = rand() % (JOURNAL_PROMPT_PRINTS + 1); i < n; i++)
                in.u.print[i] = 1 + (uint32_t)rand();
        } else if (in.kind == JOURNAL_STEP) {
            in.u.step.took_ns = ~0ull - (uint64_t)rand();
            in.u.step.kv_read = (uint64_t)rand();
            in.u.step.n_running = (uint16_t)rand();
            in.u.step.n_preempted = (uint16_t)rand();
        } else if (in.kind == JOURNAL_END) {
            in.status = (uint8_t)rand();
            in.u.end.n_cached = (uint32_t)rand();
        }
        journal_write(&text, &in);
        ck_assert_msg(journal_read(line_of(&text), &out, &c, &e) == OK, "%s: %s", text.ptr, e.text);
        EXPECT(memcmp(&in, &out, sizeof(in)) == 0);
        buf_release(&text);
    }
}
END_TEST

START_TEST(the_configuration_reads_back)
{
    struct journal_config in = {.max_running = 3,
                                .max_queued = 4,
                                .max_batch_tokens = 5,
                                .chunk_max = 6,
                                .step_target_ms = 7,
                                .max_context = 8,
                                .block_tokens = 16,
                                .n_groups = 2,
                                .group = {{0, 10, 11, 12, 13}, {512, 20, 21, 22, 1ull << 40}},
                                .reserve = 2,
                                .preempt = 3,
                                .ram_ps_byte = 250,
                                .prefix = true};
    struct journal_config out = {0};
    struct journal_record r;
    struct err e;
    struct buf text = {0};
    journal_write_config(&text, &in);
    ck_assert_msg(journal_read(line_of(&text), &r, &out, &e) == OK, "%s", e.text);
    ck_assert_uint_eq(r.kind, JOURNAL_CONFIG);
    struct buf again = {0};
    journal_write_config(&again, &out);
    ck_assert_str_eq(text.ptr, again.ptr);
    ck_assert_uint_eq(out.group[1].block_bytes, 1ull << 40);
    ck_assert(out.prefix);
    buf_release(&text);
    buf_release(&again);
}
END_TEST

START_TEST(lines_that_are_no_record_are_refused)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{\"kind\":5}",
        "{\"kind\":\"submit\",\"n_prompt\":\"x\"}",
        "{\"kind\":\"submit\",\"n_prompt\":4294967296}",
        "{\"kind\":\"submit\",\"n_prompt\":-1}",
        "{\"kind\":\"submit\",\"n_choices\":65536}",
        "{\"kind\":\"prompt\"}",
        "{\"kind\":\"prompt\",\"print\":[1,2,3,4,5,6,7,8,9,10,11,12,13]}",
        "{\"kind\":\"prompt\",\"print\":[4294967296]}",
        "{\"kind\":\"config\"}",
        "{\"kind\":\"config\",\"n_groups\":3,\"groups\":[{},{},{}]}",
        "{\"kind\":\"config\",\"n_groups\":1,\"groups\":[1]}",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct journal_record r;
        struct journal_config c = {0};
        struct err e;
        ck_assert_msg(journal_read(str_of(bad[i]), &r, &c, &e) == ERR_FORMAT, "%s", bad[i]);
    }
    struct journal_record r;
    struct journal_config c;
    struct err e;
    ck_assert_int_eq(journal_read(STR_LIT("{\"kind\":\"weather\",\"x\":[{}]}"), &r, &c, &e), OK);
    ck_assert_uint_eq(r.kind, JOURNAL_NONE);
}
END_TEST

/* Counts records of a kind. */
static uint32_t count(const struct journal *j, enum journal_kind kind)
{
    uint32_t n = 0;
    for (uint64_t i = 0; i < j->n; i++)
        n += j->ring[i].kind == kind;
    return n;
}

static const struct journal_record *find(const struct journal *j, enum journal_kind kind,
                                         uint32_t id)
{
    for (uint64_t i = 0; i < j->n; i++) {
        if (j->ring[i].kind == kind && j->ring[i].request == id)
            return &j->ring[i];
    }
    ck_abort_msg("no record of kind %d for request %u", kind, id);
    return NULL;
}

START_TEST(a_run_leaves_submits_prompts_steps_cancels_and_ends)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    clock_fake(true, 1000);
    opt.fake.step_base_ns = 500;
    opt.limits.journal_bytes = 1 << 20;
    rig_init(&g, &opt);
    struct request *r[3];
    for (uint32_t i = 0; i < 3; i++) {
        r[i] = rig_random(&g, i < 2 ? 1 : 9, 40 + 160 * (i == 2), 20);
        r[i]->id = 100 + i;
        r[i]->arrive_ns = clock_ns();
        rig_submit(&g, r[i]);
    }
    sched_cancel(g.s, r[2]);
    rig_run(&g);
    struct journal *j = &g.s->journal;
    ck_assert_uint_eq(j->config.group[0].n_frames, opt.n_blocks);
    ck_assert_uint_eq(j->config.max_batch_tokens, opt.limits.max_batch_tokens);
    ck_assert_uint_eq(count(j, JOURNAL_SUBMIT), 3);
    /* 2 + 2 + 12 prints of prompts, 12 a record; 1 + 1 of outputs: 60 tokens are 3 blocks */
    ck_assert_uint_eq(count(j, JOURNAL_PROMPT), 5);
    ck_assert_uint_eq(count(j, JOURNAL_CANCEL), 1);
    ck_assert_uint_eq(count(j, JOURNAL_END), 3);
    ck_assert_uint_eq(count(j, JOURNAL_STEP), fake_steps(g.be));
    const struct journal_record *a = find(j, JOURNAL_SUBMIT, 100), *end = find(j, JOURNAL_END, 100);
    ck_assert_uint_eq(a->u.submit.n_prompt, 40);
    ck_assert_uint_eq(a->u.submit.max_tokens, 20);
    ck_assert_uint_eq(end->u.end.n_output, 20);
    ck_assert_uint_eq(end->u.end.first_token_ns, 500);
    ck_assert_uint_eq(end->status, 0);
    ck_assert_uint_eq(find(j, JOURNAL_END, 102)->status, (uint8_t)-ERR_CANCELLED);
    ck_assert(memcmp(find(j, JOURNAL_PROMPT, 100)->u.print, find(j, JOURNAL_PROMPT, 101)->u.print,
                     sizeof(a->u.print)) == 0);
    ck_assert(memcmp(find(j, JOURNAL_PROMPT, 100)->u.print, find(j, JOURNAL_PROMPT, 102)->u.print,
                     sizeof(a->u.print)) != 0);
    uint64_t rows = 0;
    for (uint64_t i = 0; i < j->n; i++) {
        if (j->ring[i].kind == JOURNAL_STEP) {
            EXPECT(j->ring[i].u.step.took_ns == 500);
            rows += j->ring[i].u.step.n_prompt_rows;
        }
    }
    ck_assert_uint_eq(rows, 40 + 40);
    for (uint32_t i = 0; i < 3; i++)
        request_unref(r[i]);
    rig_release(&g);
}
END_TEST

START_TEST(writing_the_journal_allocates_nothing)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.limits.journal_bytes = 64 * sizeof(struct journal_record); /* wraps */
    rig_init(&g, &opt);
    struct request *r = rig_random(&g, 1, 40, 100);
    struct seen o;
    seen_init(&o, r);
    rig_submit(&g, r);
    sched_turn(g.s);
    uint64_t before = mem_thread_allocs();
    while (o.n_end == 0) {
        sched_turn(g.s);
        seen_read(&o, r, UINT32_MAX);
    }
    ck_assert_uint_eq(mem_thread_allocs(), before);
    ck_assert_uint_gt(g.s->journal.n, 100);
    seen_release(&o);
    request_unref(r);
    rig_release(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("journal");
    TCase *t = tcase_create("journal");
    tcase_add_test(t, the_ring_keeps_the_newest_records);
    tcase_add_test(t, a_journal_of_no_bytes_takes_nothing);
    tcase_add_test(t, fingerprints_follow_the_prefix);
    tcase_add_test(t, every_record_reads_back_as_it_was_written);
    tcase_add_test(t, the_configuration_reads_back);
    tcase_add_test(t, lines_that_are_no_record_are_refused);
    tcase_add_test(t, a_run_leaves_submits_prompts_steps_cancels_and_ends);
    tcase_add_test(t, writing_the_journal_allocates_nothing);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
