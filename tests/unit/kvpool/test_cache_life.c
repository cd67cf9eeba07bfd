/* Blocks, growth, forks, release, claims: the life of a block and every abort on misuse. */
#include <signal.h>
#include <string.h>

#include "tests/unit/kvpool/cache_rig.h"
#include "kvpool/kvpool_test.h"
#include "base/base_test.h"

static void setup(void)
{
    memset(&rig_options, 0, sizeof(rig_options));
    rig_open(16, 8, 0);
}

START_TEST(a_block_goes_from_free_to_open_to_sealed_to_ready_to_cached_and_back)
{
    ck_assert(rig_grow(&seq[0], 3));
    const struct kvc_block *b = rig_block(&seq[0], 0, 0);
    uint32_t generation = b->generation;
    ck_assert_int_eq(b->state, KVC_OPEN);
    ck_assert_uint_eq(b->pin, 1);
    rig_retire(&seq[0]);
    ck_assert_uint_eq(b->pin, 0);
    ck_assert(rig_grow(&seq[0], 1));
    ck_assert_int_eq(b->state, KVC_SEALED);
    rig_retire(&seq[0]);
    ck_assert_int_eq(b->state, KVC_READY);
    ck_assert(b->indexed);
    kv_seq_drop(rig, &seq[0]);
    ck_assert_int_eq(b->state, KVC_CACHED);
    ck_assert_uint_eq(b->generation, generation);
    rig_sound();
    kv_prefix_clear(rig);
    ck_assert_int_eq(b->state, KVC_FREE);
    ck_assert_uint_eq(b->generation, generation + 1);
    rig_close();
}
END_TEST

START_TEST(an_open_block_is_freed_when_its_last_holder_drops_it)
{
    rig_fill(&seq[0], 6);
    kv_seq_drop(rig, &seq[0]);
    rig_sound();
    ck_assert_uint_eq(rig->group[0].n_state[KVC_CACHED], 1);
    ck_assert_uint_eq(rig->group[0].n_state[KVC_FREE], rig->group[0].n_blocks - 1);
    rig_close();
}
END_TEST

START_TEST(a_growth_that_lacks_frames_changes_nothing)
{
    rig_fill(&seq[0], 14 * 4);
    ck_assert(!rig_grow(&seq[1], 3 * 4));
    ck_assert_uint_eq(seq[1].n_tokens, 0);
    ck_assert_uint_eq(kv_room(rig, 0), 2);
    ck_assert(rig_grow(&seq[1], 2 * 4));
    ck_assert_uint_eq(kv_room(rig, 0), 0);
    rig_retire(&seq[1]);
    rig_close();
}
END_TEST

START_TEST(a_fork_shares_all_blocks_and_copies_the_open_tail_for_each_sharer_but_the_last)
{
    rig_fill(&seq[0], 6);
    kv_seq_fork(rig, &seq[0], &seq[1]);
    kv_seq_fork(rig, &seq[0], &seq[2]);
    rig_sound();
    ck_assert_uint_eq(rig_block(&seq[2], 0, 1)->ref, 3);
    uint32_t tail = seq[0].t[0].phys[1];
    ck_assert_uint_eq(kv_seq_need(rig, &seq[1], 1).n[0], 1);
    ck_assert(rig_grow(&seq[1], 1));
    ck_assert(rig_grow(&seq[0], 1));
    ck_assert_uint_eq(n_copies, 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(copies[i].src, tail);
        ck_assert_uint_eq(copies[i].dst, seq[1 - i].t[0].phys[1]);
    }
    ck_assert_uint_eq(kv_seq_need(rig, &seq[2], 1).n[0], 0);
    ck_assert(rig_grow(&seq[2], 1));
    ck_assert_uint_eq(n_copies, 2);
    ck_assert_uint_eq(seq[2].t[0].phys[1], tail);
    for (int i = 0; i < 3; i++)
        rig_retire(&seq[i]);
    rig_close();
}
END_TEST

START_TEST(a_copys_source_is_not_reused_before_the_step_that_copies_it_has_retired)
{
    rig_fill(&seq[0], 6);
    kv_seq_fork(rig, &seq[0], &seq[1]);
    ck_assert(rig_grow(&seq[1], 1));
    uint32_t src = copies[0].src;
    kv_seq_drop(rig, &seq[0]);
    rig_sound();
    ck_assert_uint_ne(rig->group[0].frame_block[src], KV_NO_BLOCK);
    ck_assert_uint_eq(rig->group[0].n_state[KVC_ZOMBIE], 1);
    rig_retire(&seq[1]);
    ck_assert_uint_eq(rig->group[0].frame_block[src], KV_NO_BLOCK);
    rig_close();
}
END_TEST

START_TEST(undoing_a_growth_gives_its_slots_back_and_keeps_the_copied_tail)
{
    rig_fill(&seq[0], 6);
    kv_seq_fork(rig, &seq[0], &seq[1]);
    uint32_t room = kv_room(rig, 0);
    ck_assert(rig_grow(&seq[1], 7));
    ck_assert_uint_eq(kv_room(rig, 0), room - 3);
    kv_seq_undo(rig, &seq[1]);
    rig_sound();
    ck_assert_uint_eq(seq[1].n_tokens, 6);
    ck_assert_uint_eq(kv_room(rig, 0), room - 1);
    ck_assert_uint_eq(rig_block(&seq[1], 0, 1)->filled, 2);
    ck_assert_uint_eq(rig_block(&seq[1], 0, 1)->ref, 1);
    rig_fill(&seq[1], 1);
    ck_assert_uint_eq(n_copies, 1);
    kv_seq_undo(rig, &seq[1]); /* nothing in flight: nothing happens */
    ck_assert_uint_eq(seq[1].n_tokens, 7);
    rig_close();
}
END_TEST

START_TEST(a_sealed_block_is_open_again_after_an_undo)
{
    rig_fill(&seq[0], 3);
    ck_assert(rig_grow(&seq[0], 1));
    kv_seq_undo(rig, &seq[0]);
    rig_sound();
    ck_assert_int_eq(rig_block(&seq[0], 0, 0)->state, KVC_OPEN);
    rig_close();
}
END_TEST

START_TEST(a_promise_is_kept_for_its_sequence_alone)
{
    struct kv_need need = {{10}};
    ck_assert(kv_seq_claim(rig, &seq[0], &need));
    ck_assert_uint_eq(kv_room(rig, 0), 6);
    ck_assert(!kv_seq_claim(rig, &seq[1], &(struct kv_need){{7}}));
    ck_assert(!rig_grow(&seq[1], 7 * 4));
    ck_assert(rig_grow(&seq[1], 6 * 4));
    ck_assert(rig_grow(&seq[0], 10 * 4));
    ck_assert_uint_eq(seq[0].claim.n[0], 0);
    rig_retire(&seq[0]);
    rig_retire(&seq[1]);
    rig_close();
}
END_TEST

START_TEST(a_trimmed_promise_is_room_again)
{
    ck_assert(kv_seq_claim(rig, &seq[0], &(struct kv_need){{10}}));
    kv_seq_claim_trim(rig, &seq[0], &(struct kv_need){{3}});
    ck_assert_uint_eq(kv_room(rig, 0), 13);
    rig_sound();
    kv_seq_drop(rig, &seq[0]);
    ck_assert_uint_eq(kv_room(rig, 0), 16);
    rig_close();
}
END_TEST

START_TEST(what_an_undone_growth_took_from_the_promise_is_promised_again)
{
    ck_assert(kv_seq_claim(rig, &seq[0], &(struct kv_need){{10}}));
    ck_assert(rig_grow(&seq[0], 4 * 4));
    ck_assert_uint_eq(seq[0].claim.n[0], 6);
    kv_seq_undo(rig, &seq[0]);
    rig_sound();
    ck_assert_uint_eq(seq[0].claim.n[0], 10);
    ck_assert_uint_eq(kv_room(rig, 0), 6);
    rig_close();
}
END_TEST

START_TEST(a_reserve_for_a_window_lasts_for_the_sequences_whole_life)
{
    rig_close();
    rig_open(30, 0, 9);
    struct kv_need need = kv_need_of(rig, 100, 5);
    ck_assert_uint_eq(need.n[0], 25);
    ck_assert_uint_eq(need.n[1], 4);
    ck_assert(kv_seq_claim(rig, &seq[0], &need));
    ck_assert(rig_grow(&seq[1], 5 * 4)); /* the rest of group 0 */
    rig_retire(&seq[1]);
    ck_assert(kv_seq_claim(rig, &seq[1], &(struct kv_need){{0, kv_room(rig, 1)}}));
    for (uint32_t n = 0; n < 100; n += 5)
        rig_fill(&seq[0], 5);
    ck_assert_uint_eq(seq[0].claim.n[0], 0);
    rig_close();
}
END_TEST

START_TEST(the_need_of_a_length_is_met_with_equality_at_the_worst_alignment)
{
    rig_close();
    for (uint32_t window = 1; window <= 14; window++) {
        for (uint32_t chunk = 1; chunk <= 9; chunk++) {
            rig_open(40, 0, window);
            struct kv_need need = kv_need_of(rig, RIG_TOKENS, chunk);
            uint32_t most = 0;
            for (uint32_t first = 1; first <= 4; first++) {
                for (uint32_t n = 0; n + chunk <= 60; n += n == 0 ? first : chunk) {
                    ck_assert(rig_grow(&seq[0], n == 0 ? first : chunk));
                    uint32_t held = seq[0].t[1].n - seq[0].t[1].first;
                    EXPECT(held <= need.n[1]);
                    most = held > most ? held : most;
                    rig_retire(&seq[0]);
                }
                kv_seq_drop(rig, &seq[0]);
            }
            /* Chunks that are a multiple of a block never meet the worst alignment of every window. */
            EXPECT(most == need.n[1] || most + 1 == need.n[1]);
            rig_close();
        }
    }
    rig_open(16, 0, 0);
    rig_close();
}
END_TEST

START_TEST(a_short_sequence_needs_no_more_than_its_length_in_any_group)
{
    rig_close();
    rig_open(16, 0, 100);
    ck_assert_uint_eq(kv_need_of(rig, 9, 8).n[0], 3);
    ck_assert_uint_eq(kv_need_of(rig, 9, 8).n[1], 3);
    ck_assert(kv_fits(rig, &(struct kv_need){{16, 16}}));
    ck_assert(!kv_fits(rig, &(struct kv_need){{0, 17}}));
    rig_close();
}
END_TEST

START_TEST(the_step_path_allocates_nothing)
{
    rig_close();
    rig_open(20, 8, 9);
    struct kv_job job;
    uint64_t before = mem_thread_allocs();
    for (int round = 0; round < 3; round++) {
        ck_assert_uint_eq(kv_seq_adopt(rig, &seq[0], text, 40), round ? 36 : 0);
        ck_assert(kv_seq_unpark(rig, &seq[0]));
        while (kv_job_next(rig, &job))
            kv_job_done(rig, &job, true);
        kv_pending_add(rig, &seq[0], text, 40);
        ck_assert(kv_seq_grow(rig, &seq[0], 39 - seq[0].n_tokens, copies, &n_copies));
        kv_seq_retire(rig, &seq[0], text, true);
        kv_seq_fork(rig, &seq[0], &seq[1]);
        ck_assert(kv_seq_grow(rig, &seq[1], 2, copies, &n_copies));
        kv_seq_undo(rig, &seq[1]);
        kv_seq_spill(rig, &seq[0], 3);
        kv_seq_park(rig, &seq[0]);
        while (kv_job_next(rig, &job))
            kv_job_done(rig, &job, true);
        kv_seq_drop(rig, &seq[1]);
        kv_seq_drop(rig, &seq[0]);
        ck_assert(kv_cache_audit(rig, NULL) == OK);
    }
    ck_assert_uint_eq(mem_thread_allocs(), before);
    rig_close();
}
END_TEST

START_TEST(a_cache_without_tiers_jobs_and_announcements_works)
{
    struct kv_job job;
    rig_close();
    rig_options.max_jobs = rig_options.max_pending = rig_options.n_host[0] = 0;
    rig = kv_cache_new(&rig_options);
    for (int i = 0; i < RIG_SEQS; i++)
        kv_seq_init(rig, &seq[i], RIG_TOKENS, rig_root(""));
    kv_pending_add(rig, &seq[0], text, 16);
    rig_sound();
    ck_assert(!kv_pending(rig, seq[1].root, text, 16));
    rig_fill(&seq[0], 10);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 9), 0);
    kv_seq_park(rig, &seq[0]);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 9), 0);
    ck_assert_uint_eq(kv_seq_dirty(rig, &seq[0]), 3);
    ck_assert(!kv_job_next(rig, &job));
    ck_assert_uint_eq(kv_seq_absent(rig, &seq[0]).n[0], 0);
    ck_assert(kv_seq_unpark(rig, &seq[0]));
    rig_fill(&seq[0], 1);
    rig_close();
}
END_TEST

START_TEST(figures_count_frames_slots_and_waste)
{
    struct kv_stats st;
    rig_fill(&seq[0], 6);
    ck_assert(kv_seq_claim(rig, &seq[1], &(struct kv_need){{3}}));
    kv_seq_spill(rig, &seq[0], 9);
    rig_fill(&seq[2], 8);
    kv_seq_drop(rig, &seq[2]);
    rig_copy_all(true);
    kv_cache_stats(rig, &st);
    ck_assert_uint_eq(st.n_frames[0], 16);
    ck_assert_uint_eq(st.n_free[0], 13); /* the second computation of an equal block is not kept */
    ck_assert_uint_eq(st.n_cached[0], 1);
    ck_assert_uint_eq(st.n_promised[0], 3);
    ck_assert_uint_eq(st.n_slots_used[0], 1);
    ck_assert_uint_eq(st.n_slots_total[0], 8);
    ck_assert_uint_eq(st.slots_allocated, 8);
    ck_assert_uint_eq(st.slots_written, 6);
    ck_assert_uint_eq(st.n_spilled, 1);
    rig_close();
}
END_TEST

START_TEST(the_ledger_names_states_places_and_sequences)
{
    struct buf b = {0};
    rig_fill(&seq[0], 6);
    kv_seq_spill(rig, &seq[0], 1);
    kv_cache_dump(rig, &b);
    ck_assert_ptr_nonnull(strstr(b.ptr, "kv group 0: 16 frames (14 free), 8 slots (7 free)"));
    ck_assert_ptr_nonnull(strstr(b.ptr, "1 open, 0 sealed, 1 ready"));
    ck_assert_ptr_nonnull(strstr(b.ptr, "sequence of 6 tokens (6 retired, 0 hit), runs, 0 loads"));
    ck_assert_ptr_nonnull(strstr(b.ptr, "(ready ref 1 frame 0 slot 0 spilling indexed)"));
    buf_release(&b);
    rig_close();
}
END_TEST

/* ---- misuse ends the process ---- */

START_TEST(two_growths_in_flight_abort)
{
    ck_assert(rig_grow(&seq[0], 1));
    kv_seq_grow(rig, &seq[0], 1, copies, &n_copies);
}
END_TEST

START_TEST(growing_a_parked_sequence_aborts)
{
    kv_seq_grow(rig, &seq[0], 1, copies, &n_copies);
}
END_TEST

START_TEST(dropping_blocks_under_a_step_aborts)
{
    ck_assert(rig_grow(&seq[0], 1));
    kv_seq_drop(rig, &seq[0]);
}
END_TEST

START_TEST(parking_under_a_step_aborts)
{
    ck_assert(rig_grow(&seq[0], 1));
    kv_seq_park(rig, &seq[0]);
}
END_TEST

START_TEST(forking_under_a_step_aborts)
{
    ck_assert(rig_grow(&seq[0], 1));
    kv_seq_fork(rig, &seq[0], &seq[1]);
}
END_TEST

START_TEST(releasing_a_sequence_that_holds_blocks_aborts)
{
    rig_fill(&seq[0], 1);
    kv_seq_release(rig, &seq[0]);
}
END_TEST

START_TEST(freeing_a_cache_whose_blocks_are_held_aborts)
{
    rig_fill(&seq[0], 1);
    kv_cache_free(rig);
}
END_TEST

START_TEST(growing_beyond_the_table_aborts)
{
    rig_close();
    rig_open(40, 0, 0);
    rig_grow(&seq[0], RIG_TOKENS + 1);
}
END_TEST

START_TEST(a_stale_table_entry_aborts)
{
    rig_fill(&seq[0], 1);
    seq[0].t[0].generation[0]++;
    kv_seq_drop(rig, &seq[0]);
}
END_TEST

START_TEST(answering_a_copy_twice_aborts)
{
    struct kv_job job;
    rig_fill(&seq[0], 8);
    kv_seq_spill(rig, &seq[0], 1);
    ck_assert(kv_job_next(rig, &job));
    kv_job_done(rig, &job, true);
    kv_job_done(rig, &job, true);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kvpool: cache, life of a block");
    TCase *t = tcase_create("life");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, a_block_goes_from_free_to_open_to_sealed_to_ready_to_cached_and_back);
    tcase_add_test(t, an_open_block_is_freed_when_its_last_holder_drops_it);
    tcase_add_test(t, a_growth_that_lacks_frames_changes_nothing);
    tcase_add_test(t,
                   a_fork_shares_all_blocks_and_copies_the_open_tail_for_each_sharer_but_the_last);
    tcase_add_test(t, a_copys_source_is_not_reused_before_the_step_that_copies_it_has_retired);
    tcase_add_test(t, undoing_a_growth_gives_its_slots_back_and_keeps_the_copied_tail);
    tcase_add_test(t, a_sealed_block_is_open_again_after_an_undo);
    tcase_add_test(t, a_promise_is_kept_for_its_sequence_alone);
    tcase_add_test(t, a_trimmed_promise_is_room_again);
    tcase_add_test(t, what_an_undone_growth_took_from_the_promise_is_promised_again);
    tcase_add_test(t, a_reserve_for_a_window_lasts_for_the_sequences_whole_life);
    tcase_add_test(t, the_need_of_a_length_is_met_with_equality_at_the_worst_alignment);
    tcase_add_test(t, a_short_sequence_needs_no_more_than_its_length_in_any_group);
    tcase_add_test(t, the_step_path_allocates_nothing);
    tcase_add_test(t, a_cache_without_tiers_jobs_and_announcements_works);
    tcase_add_test(t, figures_count_frames_slots_and_waste);
    tcase_add_test(t, the_ledger_names_states_places_and_sequences);
    suite_add_tcase(s, t);
    t = tcase_create("misuse");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test_raise_signal(t, two_growths_in_flight_abort, SIGABRT);
    tcase_add_test_raise_signal(t, growing_a_parked_sequence_aborts, SIGABRT);
    tcase_add_test_raise_signal(t, dropping_blocks_under_a_step_aborts, SIGABRT);
    tcase_add_test_raise_signal(t, parking_under_a_step_aborts, SIGABRT);
    tcase_add_test_raise_signal(t, forking_under_a_step_aborts, SIGABRT);
    tcase_add_test_raise_signal(t, releasing_a_sequence_that_holds_blocks_aborts, SIGABRT);
    tcase_add_test_raise_signal(t, freeing_a_cache_whose_blocks_are_held_aborts, SIGABRT);
    tcase_add_test_raise_signal(t, growing_beyond_the_table_aborts, SIGABRT);
    tcase_add_test_raise_signal(t, a_stale_table_entry_aborts, SIGABRT);
    tcase_add_test_raise_signal(t, answering_a_copy_twice_aborts, SIGABRT);
    suite_add_tcase(s, t);
    return run_suite(s);
}
