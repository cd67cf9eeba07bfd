/* The prefix index: hits and their lengths, windows, isolation, collisions, eviction, announcements. */
#include <string.h>

#include "tests/unit/kvpool/cache_rig.h"
#include "kvpool/kvpool_test.h"

static void setup(void)
{
    memset(&rig_options, 0, sizeof(rig_options));
    rig_open(16, 8, 0);
}

static void reopen(uint32_t n_frames, uint32_t n_host, uint32_t window)
{
    rig_close();
    rig_open(n_frames, n_host, window);
}

/* ---- publishing and hits ---- */

START_TEST(a_block_is_found_only_after_the_step_that_filled_it_has_retired)
{
    ck_assert(rig_grow(&seq[0], 8));
    ck_assert_uint_eq(kv_match(rig, seq[1].root, text, 8), 0);
    rig_retire(&seq[0]);
    ck_assert_uint_eq(kv_match(rig, seq[1].root, text, 8), 8);
    rig_close();
}
END_TEST

START_TEST(an_undone_growth_is_never_found)
{
    ck_assert(rig_grow(&seq[0], 8));
    kv_seq_undo(rig, &seq[0]);
    ck_assert_uint_eq(kv_match(rig, seq[1].root, text, 8), 0);
    rig_close();
}
END_TEST

START_TEST(a_hit_is_the_longest_multiple_of_a_block_within_the_bound)
{
    rig_fill(&seq[0], 14);
    for (uint32_t n_max = 0; n_max <= 20; n_max++)
        EXPECT(kv_match(rig, seq[1].root, text, n_max) == (n_max < 12 ? n_max / 4 * 4 : 12));
    text[6]++;
    ck_assert_uint_eq(kv_match(rig, seq[1].root, text, 14), 4);
    text[0]++;
    ck_assert_uint_eq(kv_match(rig, seq[1].root, text, 14), 0);
    rig_close();
}
END_TEST

START_TEST(a_hit_shares_blocks_and_is_counted_once)
{
    struct kv_stats st;
    rig_fill(&seq[0], 12);
    ck_assert_uint_eq(kv_seq_adopt(rig, &seq[1], text, 11), 8);
    rig_sound();
    ck_assert_uint_eq(seq[1].n_hit, 8);
    ck_assert_uint_eq(seq[1].n_retired, 8);
    ck_assert_uint_eq(seq[1].t[0].block[1], seq[0].t[0].block[1]);
    ck_assert_uint_eq(rig_block(&seq[1], 0, 1)->ref, 2);
    kv_match(rig, seq[1].root, text, 11);
    rig_fill(&seq[1], 5);
    kv_cache_stats(rig, &st);
    ck_assert_uint_eq(st.n_queries, 1);
    ck_assert_uint_eq(st.n_query_tokens, 11);
    ck_assert_uint_eq(st.n_hit_tokens, 8);
    rig_close();
}
END_TEST

START_TEST(an_equal_block_computed_twice_keeps_the_first_in_the_index)
{
    rig_fill(&seq[0], 4);
    ck_assert(kv_seq_unpark(rig, &seq[1]));
    rig_fill(&seq[1], 8);
    ck_assert(!rig_block(&seq[1], 0, 0)->indexed);
    ck_assert(rig_block(&seq[1], 0, 1)->indexed);
    ck_assert_uint_eq(kv_seq_adopt(rig, &seq[2], text, 9), 8);
    ck_assert_uint_eq(seq[2].t[0].block[0], seq[0].t[0].block[0]);
    ck_assert_uint_eq(seq[2].t[0].block[1], seq[1].t[0].block[1]);
    rig_sound();
    rig_close();
}
END_TEST

START_TEST(what_is_not_finite_is_not_published_and_what_it_published_alone_is_forgotten)
{
    rig_fill(&seq[0], 8);
    ck_assert_uint_eq(kv_seq_adopt(rig, &seq[1], text, 4), 4);
    ck_assert(kv_seq_unpark(rig, &seq[1]));
    ck_assert(rig_grow(&seq[0], 8));
    kv_seq_retire(rig, &seq[0], text, false);
    rig_sound();
    /* Block 0 is shared and stays, block 1 was its own, blocks 2 and 3 never came in. */
    ck_assert_uint_eq(kv_match(rig, seq[2].root, text, 16), 4);
    rig_fill(&seq[0], 4);
    ck_assert_uint_eq(kv_match(rig, seq[2].root, text, 20), 4);
    rig_fill(&seq[1], 4);
    ck_assert_uint_eq(kv_match(rig, seq[2].root, text, 16), 8);
    kv_seq_fork(rig, &seq[0], &seq[3]);
    rig_fill(&seq[3], 8);
    ck_assert_uint_eq(kv_match(rig, seq[2].root, text, 28), 8); /* nor what its forks compute */
    kv_seq_drop(rig, &seq[0]);
    ck_assert(seq[0].publishes); /* a new life */
    rig_close();
}
END_TEST

START_TEST(without_a_prefix_cache_nothing_is_kept)
{
    rig_close();
    rig_open(16, 0, 0);
    rig_options.prefix = false;
    rig_close();
    rig_options.layout = &rig_layout;
    rig = kv_cache_new(&rig_options);
    for (int i = 0; i < RIG_SEQS; i++)
        kv_seq_init(rig, &seq[i], RIG_TOKENS, rig_root(""));
    rig_fill(&seq[0], 8);
    kv_pending_add(rig, &seq[0], text, 16);
    ck_assert(!kv_pending(rig, seq[1].root, text, 16));
    ck_assert_uint_eq(kv_seq_adopt(rig, &seq[1], text, 8), 0);
    kv_seq_drop(rig, &seq[0]);
    ck_assert_uint_eq(rig->group[0].n_free_frames, 16);
    rig_close();
}
END_TEST

START_TEST(clearing_forgets_what_nobody_holds)
{
    rig_fill(&seq[0], 8);
    rig_fill(&seq[1], 4);
    kv_seq_drop(rig, &seq[0]);
    kv_prefix_clear(rig);
    rig_sound();
    ck_assert_uint_eq(kv_match(rig, seq[2].root, text, 8), 0);
    ck_assert_uint_eq(kv_room(rig, 0), 15);
    rig_close();
}
END_TEST

/* ---- windows ---- */

START_TEST(a_hit_needs_the_windows_blocks_and_no_more_at_every_offset)
{
    for (uint32_t window = 1; window <= 14; window++) {
        reopen(40, 0, window);
        rig_fill(&seq[0], 40);
        kv_seq_drop(rig, &seq[0]);
        for (uint32_t n = 4; n <= 40; n += 4) {
            EXPECT(kv_seq_adopt(rig, &seq[1], text, n) == n);
            /* First position that a row at n sees, and the block it lies in. */
            uint32_t seen = n + 1 > window ? n + 1 - window : 0;
            EXPECT(seq[1].t[0].first == 0 && seq[1].t[0].n == n / 4);
            EXPECT(seq[1].t[1].first == seen / 4 && seq[1].t[1].n == n / 4);
            for (uint32_t i = 0; i < seq[1].t[1].first; i++)
                EXPECT(seq[1].t[1].phys[i] == KV_NO_BLOCK);
            rig_sound();
            kv_seq_drop(rig, &seq[1]);
        }
    }
    rig_close();
}
END_TEST

START_TEST(a_window_slides_exactly_when_no_later_row_sees_the_block)
{
    for (uint32_t window = 1; window <= 14; window++) {
        reopen(40, 0, window);
        for (uint32_t n = 1; n <= 100; n++) {
            ck_assert(rig_grow(&seq[0], 1));
            /* While the row at n - 1 is computed, its first visible position is held. */
            uint32_t sees = n > window ? n - window : 0;
            EXPECT(seq[0].t[1].first <= sees / 4 && seq[0].t[1].phys[sees / 4] != KV_NO_BLOCK);
            rig_retire(&seq[0]);
            uint32_t next = n + 1 > window ? n + 1 - window : 0;
            EXPECT(seq[0].t[1].first == next / 4);
        }
        kv_seq_drop(rig, &seq[0]);
    }
    rig_close();
}
END_TEST

START_TEST(a_missing_window_block_shortens_the_hit_to_where_all_are_there)
{
    reopen(40, 0, 6);
    rig_fill(&seq[0], 40);
    kv_seq_drop(rig, &seq[0]);
    /* Group 1 loses block 5: hits whose window reaches it are gone, shorter and longer ones are not. */
    struct kvc_group *g = &rig->group[1];
    for (uint32_t i = 0; i < g->n_blocks; i++) {
        if (g->block[i].state == KVC_CACHED && g->block[i].pos == 5) {
            kvc_unindex(rig, g, &g->block[i]);
            kvc_settle(rig, g, &g->block[i]);
        }
    }
    rig_sound();
    ck_assert_uint_eq(kv_match(rig, seq[1].root, text, 23), 20);
    ck_assert_uint_eq(kv_match(rig, seq[1].root, text, 24), 20);
    ck_assert_uint_eq(kv_match(rig, seq[1].root, text, 31), 20); /* 28 sees from 23 on */
    ck_assert_uint_eq(kv_match(rig, seq[1].root, text, 32), 32);
    rig_close();
}
END_TEST

START_TEST(blocks_that_slide_out_are_kept_in_the_index)
{
    reopen(40, 0, 5);
    rig_fill(&seq[0], 32);
    ck_assert_uint_eq(seq[0].t[1].first, 7);
    ck_assert_uint_eq(kv_seq_adopt(rig, &seq[1], text, 12), 12);
    ck_assert_uint_eq(seq[1].t[1].first, 2);
    rig_sound();
    rig_close();
}
END_TEST

START_TEST(a_model_of_windows_alone_is_hit_without_its_first_blocks)
{
    rig_close();
    rig_layout =
        (struct kv_layout){.n_layers = 1, .n_groups = 1, .n_slots = 4, .group[0] = {.window = 6}};
    rig_options.n_frames[0] = 6;
    rig_options.n_host[0] = 0;
    rig = kv_cache_new(&rig_options);
    for (int i = 0; i < RIG_SEQS; i++)
        kv_seq_init(rig, &seq[i], RIG_TOKENS, rig_root(""));
    for (int i = 0; i < 20; i++)
        rig_fill(&seq[0], 2);
    rig_fill(&seq[1], 12); /* takes the frames of the oldest */
    ck_assert_uint_eq(kv_match(rig, seq[2].root, text, 40), 40);
    ck_assert_uint_eq(kv_seq_adopt(rig, &seq[2], text, 40), 40);
    ck_assert_uint_eq(seq[2].t[0].first, 8);
    rig_sound();
    rig_close();
}
END_TEST

/* ---- isolation and collisions ---- */

START_TEST(another_salt_sees_nothing_the_same_salt_sees_all)
{
    kv_seq_release(rig, &seq[0]);
    kv_seq_init(rig, &seq[0], RIG_TOKENS, rig_root("tenant a"));
    rig_fill(&seq[0], 8);
    ck_assert_uint_eq(kv_match(rig, rig_root("tenant a"), text, 8), 8);
    ck_assert_uint_eq(kv_match(rig, rig_root("tenant b"), text, 8), 0);
    ck_assert_uint_eq(kv_match(rig, rig_root("tenant"), text, 8), 0);
    ck_assert_uint_eq(kv_match(rig, rig_root(""), text, 8), 0);
    rig_close();
}
END_TEST

START_TEST(every_part_of_the_domain_changes_the_root)
{
    struct kv_domain d = {.rope = "r", .adapter = "a", .salt = "s", .n_salt_bytes = 1};
    struct kv_domain other[] = {d, d, d, d, d, d};
    struct kv_key root = kv_root(rig, &d), key;
    other[0].model_digest[31] = 1;
    other[1].rope = "ra";
    other[2].adapter = "";
    other[3].salt = "t";
    other[4].rope = "", other[4].adapter = "ra"; /* the same bytes, divided elsewhere */
    other[5].n_salt_bytes = 0;
    for (uint32_t i = 0; i < 6; i++) {
        key = kv_root(rig, &other[i]);
        ck_assert_mem_ne(&key, &root, sizeof(key));
    }
    key = kv_root(rig, &d);
    ck_assert_mem_eq(&key, &root, sizeof(key));
    rig_layout.dtype_v = KV_Q8;
    key = kv_root(rig, &d);
    ck_assert_mem_ne(&key, &root, sizeof(key));
    rig_layout.dtype_v = KV_F16;
    rig_layout.group[0].head_dim = 7;
    key = kv_root(rig, &d);
    ck_assert_mem_ne(&key, &root, sizeof(key));
    rig_layout.group[0].head_dim = 0;
    rig->secret[1]++;
    key = kv_root(rig, &d);
    ck_assert_mem_ne(&key, &root, sizeof(key));
    rig_close();
}
END_TEST

START_TEST(keys_of_two_bits_cost_misses_never_a_wrong_block)
{
    rig_close();
    rig_options.key_bits = 2;
    rig_open(30, 0, 0);
    for (int32_t i = 0; i < 24; i++) {
        text[0] = i;
        rig_fill(&seq[0], 4);
        kv_seq_drop(rig, &seq[0]);
    }
    for (int32_t i = 0; i < 40; i++) {
        text[0] = i;
        ck_assert_uint_eq(kv_match(rig, seq[1].root, text, 4), i < 24 ? 4 : 0);
    }
    /* Equal tokens under another parent are another block. */
    text[0] = 3;
    for (int i = 0; i < 4; i++)
        text[4 + i] = text[i];
    ck_assert_uint_eq(kv_match(rig, seq[1].root, text, 8), 4);
    rig_close();
}
END_TEST

/* ---- eviction ---- */

START_TEST(the_oldest_goes_first_and_of_one_sequence_its_end)
{
    rig_fill(&seq[0], 16);
    text[0]++;
    rig_fill(&seq[1], 16);
    kv_seq_drop(rig, &seq[1]);
    text[0]--;
    kv_seq_drop(rig, &seq[0]);
    text[0] += 7;
    rig_fill(&seq[2], 10 * 4); /* 8 free frames and 2 more */
    text[0] -= 7;
    ck_assert_uint_eq(kv_match(rig, seq[3].root, text, 16), 16);
    text[0]++;
    ck_assert_uint_eq(kv_match(rig, seq[3].root, text, 16), 8);
    rig_close();
}
END_TEST

START_TEST(a_scan_of_new_prompts_does_not_flush_what_was_hit)
{
    rig_fill(&seq[0], 16);
    kv_seq_drop(rig, &seq[0]);
    ck_assert_uint_eq(kv_seq_adopt(rig, &seq[0], text, 16), 16);
    kv_seq_drop(rig, &seq[0]);
    for (int32_t i = 1; i <= 30; i++) {
        text[0] = 1000 + i;
        rig_fill(&seq[1], 16);
        kv_seq_drop(rig, &seq[1]);
    }
    text[0] = 0;
    ck_assert_uint_eq(kv_match(rig, seq[2].root, text, 16), 16);
    rig_close();
}
END_TEST

START_TEST(what_was_hit_long_ago_makes_way_when_nothing_else_is_left)
{
    rig_fill(&seq[0], 16);
    kv_seq_drop(rig, &seq[0]);
    kv_seq_adopt(rig, &seq[0], text, 16);
    kv_seq_drop(rig, &seq[0]);
    text[0]++;
    rig_fill(&seq[1], 16 * 4);
    text[0]--;
    ck_assert_uint_eq(kv_match(rig, seq[2].root, text, 16), 0);
    ck_assert_uint_eq(rig->n_evicted, 4);
    rig_close();
}
END_TEST

START_TEST(a_hit_takes_no_frame_that_is_promised)
{
    rig_fill(&seq[0], 32);
    kv_seq_drop(rig, &seq[0]);
    ck_assert(kv_seq_claim(rig, &seq[1], &(struct kv_need){{12}}));
    ck_assert_uint_eq(kv_seq_adopt(rig, &seq[2], text, 40), 16);
    rig_sound();
    ck_assert_uint_eq(kv_room(rig, 0), 0);
    ck_assert_uint_eq(kv_seq_adopt(rig, &seq[3], text, 40), 16); /* held ones cost nothing */
    rig_sound();
    rig_close();
}
END_TEST

/* ---- announcements ---- */

START_TEST(an_announced_block_is_pending_until_it_is_published)
{
    kv_pending_add(rig, &seq[0], text, 14);
    rig_sound();
    ck_assert(kv_pending(rig, seq[1].root, text, 14));
    ck_assert(kv_pending(rig, seq[1].root, text, 4));
    ck_assert(!kv_pending(rig, seq[1].root, text, 3));
    rig_fill(&seq[0], 8);
    ck_assert(kv_pending(rig, seq[1].root, text, 12)); /* 8 are cached, the third is on its way */
    ck_assert(!kv_pending(rig, seq[1].root, text, 8)); /* all there */
    rig_fill(&seq[0], 6);
    ck_assert(!kv_pending(rig, seq[1].root, text, 16));
    rig_close();
}
END_TEST

START_TEST(a_diverging_prompt_does_not_wait)
{
    kv_pending_add(rig, &seq[0], text, 12);
    text[2]++;
    ck_assert(!kv_pending(rig, seq[1].root, text, 12));
    ck_assert(!kv_pending(rig, rig_root("other"), text, 12));
    rig_close();
}
END_TEST

START_TEST(announcements_end_with_park_drop_and_what_is_not_finite)
{
    for (int how = 0; how < 4; how++) {
        kv_pending_add(rig, &seq[0], text, 12);
        ck_assert(rig_grow(&seq[0], 2));
        ck_assert(kv_pending(rig, seq[1].root, text, 12));
        kv_seq_retire(rig, &seq[0], text, how != 0);
        if (how == 1)
            kv_seq_park(rig, &seq[0]);
        if (how == 2)
            kv_pending_end(rig, &seq[0]);
        if (how == 3)
            kv_seq_drop(rig, &seq[0]);
        ck_assert(!kv_pending(rig, seq[1].root, text, 12));
        kv_seq_drop(rig, &seq[0]);
        rig_sound();
    }
    rig_close();
}
END_TEST

START_TEST(two_may_announce_the_same_and_no_more_than_the_bound_is_kept)
{
    kv_pending_add(rig, &seq[0], text, 40); /* 10 of 16 */
    kv_pending_add(rig, &seq[1], text, 40); /* 6 more */
    rig_sound();
    ck_assert_uint_eq(rig->pend_free, KV_NO_BLOCK);
    kv_pending_end(rig, &seq[0]);
    ck_assert(kv_pending(rig, seq[2].root, text, 40));
    rig_sound();
    kv_pending_end(rig, &seq[1]);
    ck_assert(!kv_pending(rig, seq[2].root, text, 40));
    kv_pending_add(rig, &seq[0], text, 40);
    kv_pending_add(rig, &seq[0], text, 8); /* anew: the old ones end */
    rig_sound();
    rig_close();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kvpool: cache, prefixes");
    TCase *t = tcase_create("hits");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, a_block_is_found_only_after_the_step_that_filled_it_has_retired);
    tcase_add_test(t, an_undone_growth_is_never_found);
    tcase_add_test(t, a_hit_is_the_longest_multiple_of_a_block_within_the_bound);
    tcase_add_test(t, a_hit_shares_blocks_and_is_counted_once);
    tcase_add_test(t, an_equal_block_computed_twice_keeps_the_first_in_the_index);
    tcase_add_test(t, what_is_not_finite_is_not_published_and_what_it_published_alone_is_forgotten);
    tcase_add_test(t, without_a_prefix_cache_nothing_is_kept);
    tcase_add_test(t, clearing_forgets_what_nobody_holds);
    tcase_add_test(t, a_hit_needs_the_windows_blocks_and_no_more_at_every_offset);
    tcase_add_test(t, a_window_slides_exactly_when_no_later_row_sees_the_block);
    tcase_add_test(t, a_missing_window_block_shortens_the_hit_to_where_all_are_there);
    tcase_add_test(t, blocks_that_slide_out_are_kept_in_the_index);
    tcase_add_test(t, a_model_of_windows_alone_is_hit_without_its_first_blocks);
    tcase_add_test(t, another_salt_sees_nothing_the_same_salt_sees_all);
    tcase_add_test(t, every_part_of_the_domain_changes_the_root);
    tcase_add_test(t, keys_of_two_bits_cost_misses_never_a_wrong_block);
    tcase_add_test(t, the_oldest_goes_first_and_of_one_sequence_its_end);
    tcase_add_test(t, a_scan_of_new_prompts_does_not_flush_what_was_hit);
    tcase_add_test(t, what_was_hit_long_ago_makes_way_when_nothing_else_is_left);
    tcase_add_test(t, a_hit_takes_no_frame_that_is_promised);
    tcase_add_test(t, an_announced_block_is_pending_until_it_is_published);
    tcase_add_test(t, a_diverging_prompt_does_not_wait);
    tcase_add_test(t, announcements_end_with_park_drop_and_what_is_not_finite);
    tcase_add_test(t, two_may_announce_the_same_and_no_more_than_the_bound_is_kept);
    suite_add_tcase(s, t);
    return run_suite(s);
}
