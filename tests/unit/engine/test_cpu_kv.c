/* The CPU's memory for KV blocks: aligned, zeroed, no two blocks overlap, and moves between all kinds of ends
 * copy exactly one block. */
#include <check.h>
#include <string.h>

#include "base/mem.h"
#include "kvpool/kvpool_test.h"
#include "engine/cpu/cpu_kv.h"
#include "tests/unit/run_suite.h"

START_TEST(the_arena_is_aligned_zero_and_holds_every_block)
{
    struct kv_layout l;
    struct kv_arena planned;
    struct kv_store *kv;
    struct err e;
    ck_assert_int_eq(kv_layout_init_plain(&l, 2, 3, 64, 16, KV_F16, &e), OK);
    ck_assert_int_eq(kv_arena_plan(&planned, &l, (uint32_t[]){100}, NULL, &e), OK);
    ck_assert_int_eq(cpu_kv_new(&l, (uint32_t[]){100}, NULL, &kv, &e), OK);
    ck_assert_uint_eq(planned.n_bytes, kv->arena.n_bytes);
    ck_assert_uint_eq((uintptr_t)kv_block_ptr(kv, 0, 0) % (2 << 20), 0);
    ck_assert_uint_ge(kv->arena.n_bytes, 100 * l.group[0].block_bytes);
    for (uint32_t b = 0; b < 100; b++) {
        uint8_t *p = kv_block_ptr(kv, 0, b);
        ck_assert_uint_eq(p[0] | p[l.group[0].block_bytes - 1], 0);
        memset(p, 0xee, l.group[0].block_bytes);
    }
    kv_store_close(kv);
    kv_store_close(NULL);
}
END_TEST

enum { FRAMES = 7, HOST = 3 };

static struct kv_store *two_groups(struct kv_layout *l)
{
    static const struct kv_layer_shape shape[] = {{0, 1, 40}, {16, 2, 24}};
    struct kv_store *kv;
    struct err e;
    ck_assert_int_eq(kv_layout_init(l, shape, 2, 8, KV_F16, KV_Q8, &e), OK);
    ck_assert_int_eq(
        cpu_kv_new(l, (uint32_t[]){FRAMES, 2 * FRAMES}, (uint32_t[]){HOST, 0}, &kv, &e), OK);
    return kv;
}

static void fill_all(struct kv_store *kv)
{
    for (uint32_t g = 0; g < 2; g++) {
        const struct kv_arena_group *a = &kv->arena.group[g];
        for (uint32_t b = 0; b < a->n_frames + a->n_host; b++)
            memset(kv_block_ptr(kv, g, b), (int)(100 * g + b + 1), a->block_bytes);
    }
}

/* Every block has the bytes of fill_all, but block `other` of a group those of block `as`. */
static void check_all(struct kv_store *kv, uint32_t group, uint32_t other, uint32_t as)
{
    for (uint32_t g = 0; g < 2; g++) {
        const struct kv_arena_group *a = &kv->arena.group[g];
        for (uint32_t b = 0; b < a->n_frames + a->n_host; b++) {
            const uint8_t *p = kv_block_ptr(kv, g, b);
            uint32_t want = 100 * g + (g == group && b == other ? as : b) + 1;
            for (size_t i = 0; i < a->block_bytes; i++)
                ck_assert_uint_eq(p[i], want);
        }
    }
}

START_TEST(groups_and_tiers_of_an_arena_do_not_overlap)
{
    struct kv_layout l;
    struct kv_store *kv = two_groups(&l);
    const uint8_t *map = ((struct cpu_kv *)kv)->map;
    fill_all(kv);
    for (uint32_t g = 0; g < 2; g++)
        ck_assert_uint_eq((uintptr_t)kv_block_ptr(kv, g, 0) % 64, 0);
    check_all(kv, 0, 0, 0);
    ck_assert(kv_block_ptr(kv, 1, 2 * FRAMES) <= map + kv->arena.n_bytes);
    kv_store_close(kv);
}
END_TEST

START_TEST(a_move_brings_one_block_between_any_two_ends)
{
    static const struct {
        uint32_t group, src, dst;
    } moves[] = {{0, 2, FRAMES + 1}, {0, FRAMES + 2, 0}, {0, 3, 4}, {1, 2 * FRAMES - 1, 0}};
    struct kv_layout l;
    struct err e;
    struct kv_store *kv = two_groups(&l);
    uint8_t *bytes = mem_alloc(4096);
    ck_assert_uint_le(l.group[0].block_bytes, 4096);
    ck_assert_uint_le(l.group[1].block_bytes, 4096);
    for (uint32_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
        uint32_t g = moves[i].group, src = moves[i].src, dst = moves[i].dst;
        fill_all(kv);
        ck_assert_int_eq(kv_store_copy(kv, g, src, dst, &e), OK);
        check_all(kv, g, dst, src);
        fill_all(kv);
        memset(bytes, 0, 4096);
        ck_assert_int_eq(kv_store_read(kv, g, src, bytes, &e), OK);
        ck_assert_uint_eq(bytes[l.group[g].block_bytes - 1], 100 * g + src + 1);
        ck_assert_uint_eq(bytes[l.group[g].block_bytes], 0);
        ck_assert_int_eq(kv_store_write(kv, g, dst, bytes, &e), OK);
        check_all(kv, g, dst, src);
    }
    mem_free(bytes);
    kv_store_close(kv);
}
END_TEST

START_TEST(staging_memory_is_aligned_and_zero)
{
    struct kv_layout l;
    struct kv_store *kv = two_groups(&l);
    uint8_t *p = kv->ops->stage(kv, 10000);
    ck_assert_uint_eq((uintptr_t)p % KV_STAGE_ALIGN, 0);
    for (int i = 0; i < 10000; i++)
        ck_assert_uint_eq(p[i], 0);
    kv->ops->unstage(kv, p);
    kv->ops->unstage(kv, NULL);
    kv_store_close(kv);
}
END_TEST

START_TEST(an_arena_beyond_memory_is_an_error)
{
    struct kv_layout l;
    struct kv_store *kv;
    struct err e;
    ck_assert_int_eq(kv_layout_init_plain(&l, 512, 65536, 65536, 64, KV_F32, &e), OK);
    ck_assert_int_eq(cpu_kv_new(&l, (uint32_t[]){UINT32_MAX}, NULL, &kv, &e), ERR_NO_MEMORY);
    ck_assert(strstr(e.text, "too large") != NULL);
    ck_assert_int_eq(cpu_kv_new(&l, (uint32_t[]){1}, NULL, &kv, &e), ERR_NO_MEMORY);
    ck_assert(strstr(e.text, "kv arena of") != NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine/cpu_kv");
    TCase *t = tcase_create("cpu_kv");
    tcase_add_test(t, the_arena_is_aligned_zero_and_holds_every_block);
    tcase_add_test(t, groups_and_tiers_of_an_arena_do_not_overlap);
    tcase_add_test(t, a_move_brings_one_block_between_any_two_ends);
    tcase_add_test(t, staging_memory_is_aligned_and_zero);
    tcase_add_test(t, an_arena_beyond_memory_is_an_error);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
