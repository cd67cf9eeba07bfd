/* Parking, spills, loads, paging out, late and failed copies. */
#include <string.h>

#include "tests/unit/kvpool/cache_rig.h"
#include "kvpool/kvpool_test.h"

static void setup(void)
{
    memset(&rig_options, 0, sizeof(rig_options));
    rig_open(16, 8, 0);
}

static struct kv_job job_out(void)
{
    struct kv_job job;
    ck_assert(kv_job_next(rig, &job));
    rig_sound();
    return job;
}

static void job_in(const struct kv_job *job, bool ok)
{
    kv_job_done(rig, job, ok);
    rig_sound();
}

/* seq[i] holds n positions, parked, all of them stored. */
static void stored(struct kv_seq *s, uint32_t n)
{
    rig_fill(s, n);
    kv_seq_park(rig, s);
    kv_seq_spill(rig, s, UINT32_MAX);
    ck_assert_uint_eq(kv_seq_dirty(rig, s), 0);
    rig_copy_all(true);
    rig_sound();
}

/* Another sequence takes every frame that can be had. */
static void squeeze(struct kv_seq *s)
{
    text[0] += 1000;
    rig_fill(s, kv_room(rig, 0) * 4);
    text[0] -= 1000;
    ck_assert_uint_eq(kv_room(rig, 0), 0);
}

START_TEST(a_parked_sequences_frames_are_room_once_they_are_copied)
{
    rig_fill(&seq[0], 6);
    ck_assert_uint_eq(kv_room(rig, 0), 14);
    kv_seq_park(rig, &seq[0]);
    ck_assert_uint_eq(kv_seq_dirty(rig, &seq[0]), 2);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 9), 2);
    ck_assert_uint_eq(kv_seq_dirty(rig, &seq[0]), 0);
    ck_assert_uint_eq(kv_jobs_open(rig), 2);
    struct kv_job job = job_out();
    ck_assert(!job.load);
    ck_assert_uint_eq(kv_room(rig, 0), 14);
    job_in(&job, true);
    ck_assert_uint_eq(kv_room(rig, 0), 15);
    rig_copy_all(true);
    ck_assert_uint_eq(kv_room(rig, 0), 16);
    rig_close();
}
END_TEST

START_TEST(unparking_at_once_needs_no_copy)
{
    stored(&seq[0], 6);
    uint32_t frame = rig_block(&seq[0], 0, 1)->frame;
    ck_assert_uint_eq(kv_seq_absent(rig, &seq[0]).n[0], 2);
    ck_assert(kv_seq_unpark(rig, &seq[0]));
    rig_sound();
    ck_assert(kv_seq_resident(&seq[0]));
    ck_assert_uint_eq(seq[0].t[0].phys[1], frame);
    ck_assert_uint_eq(kv_jobs_open(rig), 0);
    rig_fill(&seq[0], 4);
    rig_close();
}
END_TEST

START_TEST(a_swapped_out_sequence_comes_back_when_its_loads_are_done)
{
    stored(&seq[0], 14);
    squeeze(&seq[1]);
    ck_assert(!kv_seq_unpark(rig, &seq[0]));
    kv_seq_drop(rig, &seq[1]);
    ck_assert_uint_eq(kv_seq_absent(rig, &seq[0]).n[0], 4);
    ck_assert(kv_seq_unpark(rig, &seq[0]));
    rig_sound();
    ck_assert_uint_eq(seq[0].n_loading, 4);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert(!kv_seq_resident(&seq[0]));
        struct kv_job job = job_out();
        ck_assert(job.load);
        ck_assert_uint_eq(job.frame, seq[0].t[0].phys[i]);
        job_in(&job, true);
    }
    ck_assert(kv_seq_resident(&seq[0]));
    rig_fill(&seq[0], 3);
    rig_close();
}
END_TEST

START_TEST(loads_go_before_spills_and_no_more_than_max_jobs_are_out)
{
    stored(&seq[0], 8);
    squeeze(&seq[1]);
    kv_seq_drop(rig, &seq[1]);
    rig_fill(&seq[2], 16);
    kv_seq_spill(rig, &seq[2], 4);
    ck_assert(kv_seq_unpark(rig, &seq[0]));
    struct kv_job job[4], more;
    for (int i = 0; i < 4; i++) {
        job[i] = job_out();
        ck_assert_int_eq(job[i].load, i < 2);
        ck_assert_uint_eq(job[i].id, job[0].id + (uint64_t)i);
    }
    ck_assert(!kv_job_next(rig, &more));
    ck_assert_uint_eq(kv_jobs_open(rig), 6);
    for (int i = 3; i >= 0; i--)
        job_in(&job[i], true);
    ck_assert(kv_seq_resident(&seq[0]));
    ck_assert_uint_eq(rig_copy_all(true), 2);
    rig_close();
}
END_TEST

START_TEST(a_running_sequence_spills_its_retired_full_blocks_of_full_groups_oldest_first)
{
    rig_close();
    rig_open(16, 8, 9);
    rig_fill(&seq[0], 14);
    ck_assert(rig_grow(&seq[0], 4));
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 2), 2);
    struct kv_job job = job_out();
    ck_assert_uint_eq(job.group, 0);
    ck_assert_uint_eq(job.block, seq[0].t[0].block[0]);
    job_in(&job, true);
    rig_copy_all(true);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 9), 1);
    rig_copy_all(true);
    rig_retire(&seq[0]);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 9), 1);
    rig_copy_all(true);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 9), 0);
    /* Parked: the window's blocks and the open ones too. */
    kv_seq_park(rig, &seq[0]);
    uint32_t held = seq[0].t[1].n - seq[0].t[1].first;
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 99), 1 + held);
    rig_sound();
    rig_close();
}
END_TEST

START_TEST(growing_an_open_block_voids_its_copy)
{
    stored(&seq[0], 6);
    ck_assert_uint_eq(kv_slots_free(rig, 0), 6);
    rig_fill(&seq[0], 1);
    ck_assert_uint_eq(rig_block(&seq[0], 0, 1)->slot, KV_NO_BLOCK);
    kv_seq_park(rig, &seq[0]);
    ck_assert_uint_eq(kv_seq_dirty(rig, &seq[0]), 1);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 9), 1);
    /* Queued and not yet begun: called off. */
    rig_fill(&seq[0], 1);
    ck_assert_uint_eq(kv_jobs_open(rig), 0);
    rig_close();
}
END_TEST

START_TEST(growing_an_open_block_that_a_copy_reads_copies_the_block)
{
    rig_fill(&seq[0], 6);
    kv_seq_park(rig, &seq[0]);
    kv_seq_spill(rig, &seq[0], 9);
    struct kv_job first = job_out(), tail = job_out();
    ck_assert_uint_eq(tail.block, seq[0].t[0].block[1]);
    ck_assert(kv_seq_unpark(rig, &seq[0]));
    ck_assert_uint_eq(kv_seq_need(rig, &seq[0], 1).n[0], 1);
    rig_fill(&seq[0], 1);
    ck_assert_uint_eq(n_copies, 1);
    ck_assert_uint_eq(copies[0].src, tail.frame);
    ck_assert_uint_ne(rig->group[0].frame_block[tail.frame], KV_NO_BLOCK);
    job_in(&tail, true);
    ck_assert_uint_eq(rig->group[0].frame_block[tail.frame], KV_NO_BLOCK);
    job_in(&first, true);
    rig_close();
}
END_TEST

START_TEST(a_block_dropped_under_a_copy_keeps_frame_and_slot_until_the_copy_ends)
{
    for (int ok = 0; ok < 2; ok++) {
        rig_fill(&seq[0], 3);
        kv_seq_park(rig, &seq[0]);
        kv_seq_spill(rig, &seq[0], 1);
        struct kv_job job = job_out();
        kv_seq_drop(rig, &seq[0]);
        rig_sound();
        ck_assert_uint_eq(rig->group[0].n_state[KVC_ZOMBIE], 1);
        ck_assert_uint_eq(kv_room(rig, 0), 15);
        ck_assert_uint_eq(kv_slots_free(rig, 0), 7);
        job_in(&job, ok);
        ck_assert_uint_eq(kv_room(rig, 0), 16);
        ck_assert_uint_eq(kv_slots_free(rig, 0), 8);
    }
    rig_close();
}
END_TEST

START_TEST(an_indexed_block_dropped_under_a_copy_can_be_hit_and_not_evicted)
{
    rig_fill(&seq[0], 4);
    kv_seq_spill(rig, &seq[0], 1);
    struct kv_job job = job_out();
    kv_seq_drop(rig, &seq[0]);
    rig_sound();
    ck_assert_uint_eq(kv_room(rig, 0), 15);
    ck_assert_uint_eq(kv_seq_adopt(rig, &seq[1], text, 4), 4);
    rig_sound();
    job_in(&job, true);
    ck_assert(kv_seq_unpark(rig, &seq[1]));
    ck_assert(kv_seq_resident(&seq[1]));
    rig_close();
}
END_TEST

START_TEST(dropping_calls_off_copies_that_have_not_begun)
{
    rig_fill(&seq[0], 12);
    kv_seq_spill(rig, &seq[0], 3);
    kv_seq_drop(rig, &seq[0]);
    rig_sound();
    ck_assert_uint_eq(kv_jobs_open(rig), 0);
    ck_assert_uint_eq(kv_slots_free(rig, 0), 8);
    stored(&seq[1], 7);
    squeeze(&seq[2]);
    kv_seq_drop(rig, &seq[2]);
    ck_assert(kv_seq_unpark(rig, &seq[1]));
    kv_seq_park(rig, &seq[1]);
    rig_sound();
    ck_assert_uint_eq(kv_jobs_open(rig), 0);
    ck_assert_uint_eq(kv_room(rig, 0), 16);
    rig_close();
}
END_TEST

START_TEST(a_failed_spill_gives_its_slot_back_and_can_be_tried_again)
{
    rig_fill(&seq[0], 8);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 9), 2);
    ck_assert_uint_eq(rig_copy_all(false), 2);
    ck_assert_uint_eq(kv_slots_free(rig, 0), 8);
    ck_assert_uint_eq(rig->n_failed, 2);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 9), 2);
    ck_assert_uint_eq(rig_copy_all(true), 2);
    rig_close();
}
END_TEST

START_TEST(a_failed_load_loses_those_that_wait_for_it_and_no_others)
{
    stored(&seq[0], 8);
    kv_seq_fork(rig, &seq[0], &seq[1]);
    kv_seq_fork(rig, &seq[0], &seq[2]);
    squeeze(&seq[3]);
    kv_seq_drop(rig, &seq[3]);
    rig_fill(&seq[4], 3);
    ck_assert(kv_seq_unpark(rig, &seq[0]));
    ck_assert(kv_seq_unpark(rig, &seq[1]));
    kv_pending_add(rig, &seq[0], text, 16);
    ck_assert(kv_pending(rig, seq[5].root, text, 16));
    ck_assert_uint_eq(kv_jobs_open(rig), 2);
    struct kv_job job = job_out();
    job_in(&job, false);
    ck_assert_uint_eq(seq[0].pend_head, KV_NO_BLOCK);
    ck_assert(seq[0].lost && seq[1].lost);
    ck_assert(!seq[2].lost && !seq[4].lost);
    ck_assert(!kv_seq_resident(&seq[0]));
    ck_assert_uint_eq(kv_match(rig, seq[5].root, text, 8), 0); /* forgotten */
    rig_copy_all(true);
    kv_seq_drop(rig, &seq[0]);
    kv_seq_drop(rig, &seq[1]);
    rig_sound();
    ck_assert(!seq[0].lost);
    /* The slot may be readable after all: who waits for it later tries again. */
    ck_assert(kv_seq_unpark(rig, &seq[2]));
    rig_copy_all(true);
    ck_assert(kv_seq_resident(&seq[2]));
    rig_close();
}
END_TEST

START_TEST(one_who_joins_a_load_waits_for_it_too)
{
    stored(&seq[0], 4);
    kv_seq_fork(rig, &seq[0], &seq[1]);
    squeeze(&seq[2]);
    kv_seq_drop(rig, &seq[2]);
    ck_assert(kv_seq_unpark(rig, &seq[0]));
    struct kv_job job = job_out();
    ck_assert(kv_seq_unpark(rig, &seq[1]));
    ck_assert_uint_eq(seq[1].n_loading, 1);
    kv_seq_drop(rig, &seq[0]);
    rig_sound();
    job_in(&job, true);
    ck_assert(kv_seq_resident(&seq[1]));
    rig_close();
}
END_TEST

START_TEST(a_hit_in_a_slot_comes_back_by_a_load)
{
    stored(&seq[0], 8);
    kv_seq_drop(rig, &seq[0]);
    squeeze(&seq[1]);
    kv_seq_drop(rig, &seq[1]);
    ck_assert_uint_eq(kv_seq_adopt(rig, &seq[2], text, 9), 8);
    ck_assert_uint_eq(kv_seq_absent(rig, &seq[2]).n[0], 2);
    ck_assert(kv_seq_unpark(rig, &seq[2]));
    ck_assert_uint_eq(rig_copy_all(true), 2);
    ck_assert(kv_seq_resident(&seq[2]));
    rig_close();
}
END_TEST

START_TEST(cached_blocks_give_up_their_slots_to_a_parked_sequence)
{
    stored(&seq[0], 32);
    kv_seq_drop(rig, &seq[0]);
    ck_assert_uint_eq(kv_slots_free(rig, 0), 8);
    text[0]++;
    rig_fill(&seq[1], 24);
    kv_seq_park(rig, &seq[1]);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[1], 99), 6);
    rig_sound();
    rig_copy_all(true);
    /* Frames stand in for the slots taken: all of the first prompt is still there. */
    text[0]--;
    ck_assert_uint_eq(kv_match(rig, seq[2].root, text, 32), 32);
    rig_close();
}
END_TEST

START_TEST(blocks_in_slots_alone_are_evicted_for_a_parked_sequence)
{
    stored(&seq[0], 32);
    kv_seq_drop(rig, &seq[0]);
    squeeze(&seq[1]);
    kv_seq_drop(rig, &seq[1]);
    kv_prefix_clear(rig);
    ck_assert_uint_eq(kv_match(rig, seq[2].root, text, 32), 0);
    stored(&seq[0], 32);
    kv_seq_drop(rig, &seq[0]);
    squeeze(&seq[1]);
    ck_assert_uint_eq(kv_match(rig, seq[2].root, text, 32), 32);
    kv_seq_park(rig, &seq[1]);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[1], 3), 3);
    rig_sound();
    ck_assert_uint_eq(kv_match(rig, seq[2].root, text, 32), 20); /* its end went */
    rig_copy_all(true);
    rig_close();
}
END_TEST

START_TEST(copies_made_ahead_by_running_sequences_give_way_to_a_parked_one_only)
{
    rig_fill(&seq[0], 32);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 99), 8);
    rig_copy_all(true);
    text[0]++;
    rig_fill(&seq[1], 12);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[1], 99), 0);
    kv_seq_park(rig, &seq[1]);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[1], 99), 3);
    rig_sound();
    rig_copy_all(true);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 99), 0);
    kv_seq_drop(rig, &seq[1]);
    kv_prefix_clear(rig);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 99), 3); /* the lost ones again */
    rig_copy_all(true);
    rig_close();
}
END_TEST

START_TEST(a_sequence_larger_than_the_arena_goes_on_with_its_oldest_blocks_in_slots)
{
    rig_fill(&seq[0], 64);
    ck_assert(!rig_grow(&seq[0], 1));
    ck_assert_uint_eq(kv_seq_page_out(rig, &seq[0], 4), 0); /* nothing is copied yet */
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 5), 5);
    rig_copy_all(true);
    ck_assert_uint_eq(kv_seq_page_out(rig, &seq[0], 3), 3);
    rig_sound();
    ck_assert_uint_eq(seq[0].t[0].n_paged, 3);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(seq[0].t[0].phys[i], 16 + rig_block(&seq[0], 0, i)->slot);
    ck_assert_uint_eq(kv_room(rig, 0), 3);
    rig_fill(&seq[0], 9);
    ck_assert(kv_seq_resident(&seq[0]));
    /* Parked and back: at least what exceeds the arena stays in slots. */
    kv_seq_park(rig, &seq[0]);
    rig_sound();
    ck_assert(!kv_seq_unpark(rig, &seq[0]));
    ck_assert_uint_eq(kv_seq_absent_paged(rig, &seq[0], 5).n[0], 0);
    ck_assert(kv_seq_unpark_paged(rig, &seq[0], 5));
    rig_sound();
    ck_assert_uint_eq(seq[0].t[0].n_paged, 5);
    ck_assert(kv_seq_resident(&seq[0]));
    rig_close();
}
END_TEST

START_TEST(a_block_that_another_runs_on_is_not_paged_out)
{
    rig_fill(&seq[0], 12);
    kv_seq_fork(rig, &seq[0], &seq[1]);
    kv_seq_spill(rig, &seq[0], 9);
    rig_copy_all(true);
    ck_assert_uint_eq(kv_seq_page_out(rig, &seq[0], 9), 0);
    kv_seq_park(rig, &seq[1]);
    ck_assert_uint_eq(kv_seq_page_out(rig, &seq[0], 9), 3);
    rig_sound();
    /* A fork of it reads the same slots; another that loads them has frames of its own. */
    kv_seq_fork(rig, &seq[0], &seq[2]);
    rig_sound();
    ck_assert_uint_eq(seq[2].t[0].n_paged, 3);
    squeeze(&seq[3]);
    kv_seq_drop(rig, &seq[3]);
    ck_assert(kv_seq_unpark(rig, &seq[1]));
    ck_assert_uint_eq(rig_copy_all(true), 3);
    ck_assert(kv_seq_resident(&seq[1]));
    ck_assert_uint_lt(seq[1].t[0].phys[0], 16);
    ck_assert_uint_ge(seq[0].t[0].phys[0], 16);
    rig_close();
}
END_TEST

START_TEST(no_block_of_a_window_is_paged_out)
{
    rig_close();
    rig_layout =
        (struct kv_layout){.n_layers = 1, .n_groups = 1, .n_slots = 4, .group[0] = {.window = 20}};
    rig = kv_cache_new(&rig_options);
    for (int i = 0; i < RIG_SEQS; i++)
        kv_seq_init(rig, &seq[i], RIG_TOKENS, rig_root(""));
    rig_fill(&seq[0], 12);
    kv_seq_park(rig, &seq[0]);
    kv_seq_spill(rig, &seq[0], 9);
    rig_copy_all(true);
    ck_assert(kv_seq_unpark_paged(rig, &seq[0], 9));
    ck_assert_uint_eq(seq[0].t[0].n_paged, 0);
    ck_assert_uint_eq(kv_seq_page_out(rig, &seq[0], 9), 0);
    rig_close();
}
END_TEST

START_TEST(what_was_hit_is_copied_ahead_when_frames_get_few)
{
    rig_fill(&seq[0], 16);
    kv_seq_drop(rig, &seq[0]);
    kv_seq_adopt(rig, &seq[0], text, 16);
    kv_seq_drop(rig, &seq[0]);
    struct kv_job job;
    ck_assert(!kv_job_next(rig, &job)); /* 12 frames are free */
    text[0]++;
    rig_fill(&seq[1], 44);
    ck_assert_uint_eq(rig_copy_all(true), 4);
    rig_fill(&seq[1], 16);
    text[0]--;
    ck_assert_uint_eq(kv_match(rig, seq[2].root, text, 16), 16);
    ck_assert_uint_eq(kv_seq_adopt(rig, &seq[2], text, 16), 16);
    ck_assert_uint_eq(kv_seq_absent(rig, &seq[2]).n[0], 4);
    rig_sound();
    rig_close();
}
END_TEST

START_TEST(blocks_of_windows_are_copied_ahead_too)
{
    rig_close();
    rig_open(16, 8, 40);
    rig_close();
    rig_options.n_frames[0] = 99;
    rig = kv_cache_new(&rig_options);
    for (int i = 0; i < RIG_SEQS; i++)
        kv_seq_init(rig, &seq[i], RIG_TOKENS, rig_root(""));
    rig_fill(&seq[0], 16);
    kv_seq_drop(rig, &seq[0]);
    kv_seq_adopt(rig, &seq[0], text, 16);
    kv_seq_drop(rig, &seq[0]);
    text[0]++;
    rig_fill(&seq[1], 48);
    struct kv_job job = job_out();
    ck_assert_uint_eq(job.group, 1);
    job_in(&job, true);
    rig_close();
}
END_TEST

START_TEST(copies_ahead_take_no_slot_of_one_that_would_be_copied_again)
{
    rig_close();
    rig_open(16, 2, 0);
    rig_fill(&seq[0], 32);
    kv_seq_drop(rig, &seq[0]);
    kv_seq_adopt(rig, &seq[0], text, 32);
    kv_seq_drop(rig, &seq[0]);
    text[0]++;
    rig_fill(&seq[1], 32);
    ck_assert_uint_eq(rig_copy_all(true), 2);
    ck_assert_uint_eq(rig_copy_all(true), 0);
    rig_close();
}
END_TEST

START_TEST(copies_ahead_take_no_promised_frame)
{
    rig_fill(&seq[0], 16);
    kv_seq_drop(rig, &seq[0]);
    kv_seq_adopt(rig, &seq[0], text, 16);
    kv_seq_drop(rig, &seq[0]);
    ck_assert(kv_seq_claim(rig, &seq[1], &(struct kv_need){{16}}));
    text[0]++;
    rig_fill(&seq[1], 48);
    struct kv_job job;
    ck_assert(!kv_job_next(rig, &job));
    rig_fill(&seq[1], 16);
    rig_close();
}
END_TEST

START_TEST(ram_slots_are_used_before_the_files)
{
    rig_close();
    rig_options.n_file[0] = 3;
    rig_open(16, 2, 0);
    rig_fill(&seq[0], 20);
    ck_assert_uint_eq(kv_seq_spill(rig, &seq[0], 9), 5);
    for (uint32_t i = 0; i < 4; i++) {
        struct kv_job job = job_out();
        ck_assert_uint_eq(job.slot, i);
        job_in(&job, true);
    }
    rig_copy_all(true);
    rig_close();
}
END_TEST

START_TEST(private_frames_are_those_that_a_drop_frees)
{
    rig_fill(&seq[0], 10);
    ck_assert_uint_eq(kv_seq_private(rig, &seq[0]).n[0], 3);
    kv_seq_fork(rig, &seq[0], &seq[1]);
    ck_assert_uint_eq(kv_seq_private(rig, &seq[0]).n[0], 0);
    rig_fill(&seq[1], 3);
    ck_assert_uint_eq(kv_seq_private(rig, &seq[0]).n[0], 1);
    ck_assert_uint_eq(kv_seq_private(rig, &seq[1]).n[0], 2);
    uint32_t room = kv_room(rig, 0);
    kv_seq_drop(rig, &seq[1]);
    ck_assert_uint_eq(kv_room(rig, 0), room + 2);
    rig_close();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kvpool: cache, tiers");
    TCase *t = tcase_create("tiers");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, a_parked_sequences_frames_are_room_once_they_are_copied);
    tcase_add_test(t, unparking_at_once_needs_no_copy);
    tcase_add_test(t, a_swapped_out_sequence_comes_back_when_its_loads_are_done);
    tcase_add_test(t, loads_go_before_spills_and_no_more_than_max_jobs_are_out);
    tcase_add_test(t,
                   a_running_sequence_spills_its_retired_full_blocks_of_full_groups_oldest_first);
    tcase_add_test(t, growing_an_open_block_voids_its_copy);
    tcase_add_test(t, growing_an_open_block_that_a_copy_reads_copies_the_block);
    tcase_add_test(t, a_block_dropped_under_a_copy_keeps_frame_and_slot_until_the_copy_ends);
    tcase_add_test(t, an_indexed_block_dropped_under_a_copy_can_be_hit_and_not_evicted);
    tcase_add_test(t, dropping_calls_off_copies_that_have_not_begun);
    tcase_add_test(t, a_failed_spill_gives_its_slot_back_and_can_be_tried_again);
    tcase_add_test(t, a_failed_load_loses_those_that_wait_for_it_and_no_others);
    tcase_add_test(t, one_who_joins_a_load_waits_for_it_too);
    tcase_add_test(t, a_hit_in_a_slot_comes_back_by_a_load);
    tcase_add_test(t, cached_blocks_give_up_their_slots_to_a_parked_sequence);
    tcase_add_test(t, blocks_in_slots_alone_are_evicted_for_a_parked_sequence);
    tcase_add_test(t, copies_made_ahead_by_running_sequences_give_way_to_a_parked_one_only);
    tcase_add_test(t, a_sequence_larger_than_the_arena_goes_on_with_its_oldest_blocks_in_slots);
    tcase_add_test(t, a_block_that_another_runs_on_is_not_paged_out);
    tcase_add_test(t, no_block_of_a_window_is_paged_out);
    tcase_add_test(t, what_was_hit_is_copied_ahead_when_frames_get_few);
    tcase_add_test(t, blocks_of_windows_are_copied_ahead_too);
    tcase_add_test(t, copies_ahead_take_no_slot_of_one_that_would_be_copied_again);
    tcase_add_test(t, copies_ahead_take_no_promised_frame);
    tcase_add_test(t, ram_slots_are_used_before_the_files);
    tcase_add_test(t, private_frames_are_those_that_a_drop_frees);
    suite_add_tcase(s, t);
    return run_suite(s);
}
