/* Each invariant of the audit (cache_audit.c) is broken by hand and reported under its number. */
#include <string.h>

#include "tests/unit/kvpool/cache_rig.h"

static struct kvc_group *g;

/* seq[0] runs with 3 blocks, the last one open, one stored; seq[1] is parked with a stored block of its
 * own text; seq[2] has a growth in flight that copies from the tail of seq[0]; a block is cached. */
static void setup(void)
{
    memset(&rig_options, 0, sizeof(rig_options));
    rig_open(16, 8, 0);
    g = &rig->group[0];
    rig_fill(&seq[0], 10);
    text[0]++;
    rig_fill(&seq[3], 4);
    kv_seq_drop(rig, &seq[3]);
    text[0]++;
    rig_fill(&seq[1], 8);
    kv_seq_park(rig, &seq[1]);
    kv_seq_spill(rig, &seq[1], 9);
    rig_copy_all(true);
    text[0] -= 2;
    kv_seq_fork(rig, &seq[0], &seq[2]);
    kv_seq_spill(rig, &seq[0], 1);
    ck_assert(rig_grow(&seq[2], 1));
    kv_pending_add(rig, &seq[2], text, 20);
    rig_sound();
}

static void expect(const char *what)
{
    struct err e;
    ck_assert_int_eq(kv_cache_audit(rig, &e), ERR_INTERNAL);
    ck_assert_msg(strncmp(e.text, what, strlen(what)) == 0, "\"%s\" instead of %s", e.text, what);
    ck_assert_int_eq(kv_cache_audit(rig, NULL), ERR_INTERNAL);
}

static struct kvc_block *block(const struct kv_seq *s, uint32_t i)
{
    return &g->block[s->t[0].block[i]];
}

static struct kvc_block *cached(void)
{
    for (uint32_t i = 0; i < g->n_blocks; i++) {
        if (g->block[i].state == KVC_CACHED)
            return &g->block[i];
    }
    ck_abort_msg("none is cached");
}

START_TEST(a_count_of_states_that_is_wrong)
{
    g->n_state[KVC_READY]++;
    expect("kv I1:");
}
END_TEST

START_TEST(a_block_that_left_the_free_list)
{
    g->free_block = g->block[g->free_block].next;
    expect("kv I1:");
}
END_TEST

START_TEST(a_held_block_on_the_free_list)
{
    g->block[g->free_block].next = seq[0].t[0].block[0];
    expect("kv I1:");
}
END_TEST

START_TEST(a_holder_too_many)
{
    block(&seq[0], 0)->ref++;
    expect("kv I2:");
}
END_TEST

START_TEST(a_pin_too_many)
{
    block(&seq[0], 1)->pin++;
    expect("kv I3:");
}
END_TEST

START_TEST(a_copys_source_that_is_not_pinned)
{
    g->block[seq[2].t[0].cow_block].pin--;
    expect("kv I3:");
}
END_TEST

START_TEST(an_entry_of_an_earlier_life)
{
    block(&seq[0], 0)->generation++;
    expect("kv I4:");
}
END_TEST

START_TEST(an_entry_at_another_place)
{
    block(&seq[1], 1)->pos = 0;
    expect("kv I4:");
}
END_TEST

START_TEST(an_entry_of_no_block)
{
    seq[0].t[0].block[0] = g->n_blocks;
    expect("kv I4:");
}
END_TEST

START_TEST(a_table_that_is_too_short)
{
    seq[0].t[0].n--;
    expect("kv I5:");
}
END_TEST

START_TEST(a_table_that_starts_too_late)
{
    seq[0].t[0].first++;
    expect("kv I5:");
}
END_TEST

START_TEST(a_filled_count_that_differs_from_the_tables)
{
    block(&seq[2], 2)->filled--;
    expect("kv I6:");
}
END_TEST

START_TEST(a_sealed_block_that_nobody_writes)
{
    kvc_set_state(g, block(&seq[0], 0), KVC_SEALED);
    expect("kv I6:");
}
END_TEST

START_TEST(a_written_block_with_a_copy)
{
    struct kvc_block *b = block(&seq[2], 2);
    b->slot = g->free_host[--g->n_free_host];
    g->slot_block[b->slot] = kvc_index(g, b);
    expect("kv I7:");
}
END_TEST

START_TEST(a_promise_that_nobody_has)
{
    g->n_promised++;
    expect("kv I8:");
}
END_TEST

START_TEST(a_sum_of_filled_slots_that_is_wrong)
{
    g->n_written++;
    expect("kv I9:");
}
END_TEST

START_TEST(a_generation_that_goes_back)
{
    g->block[g->free_block].generation = (uint32_t)-5;
    expect("kv I10:");
}
END_TEST

START_TEST(a_frame_of_two_blocks)
{
    struct kvc_block *b = cached();
    b->frame = block(&seq[1], 0)->frame;
    expect("kv I11:");
}
END_TEST

START_TEST(a_frame_that_is_lost)
{
    g->n_free_frames--;
    expect("kv I11:");
}
END_TEST

START_TEST(a_frame_that_is_free_twice)
{
    g->free_frame[0] = g->free_frame[1];
    expect("kv I11:");
}
END_TEST

START_TEST(a_free_frame_that_is_held)
{
    g->free_frame[0] = block(&seq[0], 0)->frame;
    expect("kv I11:");
}
END_TEST

START_TEST(a_block_that_is_nowhere)
{
    struct kvc_block *b = cached();
    kvc_drop_frame(g, b);
    expect("kv I12:");
}
END_TEST

START_TEST(a_reader_too_few)
{
    block(&seq[0], 0)->n_run--;
    expect("kv I13:");
}
END_TEST

START_TEST(a_running_entry_that_names_another_frame)
{
    seq[0].t[0].phys[1] = 15;
    expect("kv I13:");
}
END_TEST

START_TEST(a_hole_in_a_running_table)
{
    seq[0].t[0].phys[1] = KV_NO_BLOCK;
    expect("kv I13:");
}
END_TEST

START_TEST(a_parked_entry_that_names_a_frame)
{
    seq[1].t[0].phys[0] = block(&seq[1], 0)->frame;
    expect("kv I13:");
}
END_TEST

START_TEST(a_count_of_paged_entries_that_is_wrong)
{
    seq[0].t[0].n_paged++;
    expect("kv I14:");
}
END_TEST

START_TEST(a_block_on_another_list_than_its_own)
{
    block(&seq[1], 0)->list = KVC_TWIN;
    expect("kv I15:");
}
END_TEST

START_TEST(a_list_whose_count_is_wrong)
{
    g->list[KVC_PARKED].n++;
    expect("kv I15:");
}
END_TEST

START_TEST(a_cached_block_out_of_the_index)
{
    kvc_unindex(rig, g, cached());
    expect("kv I16:");
}
END_TEST

START_TEST(an_indexed_block_whose_tokens_changed)
{
    g->tokens[kvc_index(g, cached()) * 4]++;
    expect("kv I16:");
}
END_TEST

START_TEST(an_indexed_block_that_no_bucket_holds)
{
    struct kvc_block *b = cached();
    g->bucket[b->key.w[0] & g->mask] = KV_NO_BLOCK;
    expect("kv I16:");
}
END_TEST

START_TEST(neighbours_that_are_not_linked)
{
    struct kvc_block *b = block(&seq[1], 1);
    struct kv_key key;
    kvc_unindex(rig, g, b);
    b->parent.w[0]++;
    key = kvc_chain(rig, b->parent, g->tokens + kvc_index(g, b) * 4);
    b->key = key;
    b->hash_next = g->bucket[key.w[0] & g->mask];
    g->bucket[key.w[0] & g->mask] = kvc_index(g, b);
    b->indexed = true;
    expect("kv I17:");
}
END_TEST

START_TEST(a_copy_that_is_out_and_not_counted)
{
    rig->n_out++;
    expect("kv I18:");
}
END_TEST

START_TEST(a_waiting_copy_that_left_its_queue)
{
    ck_assert_uint_eq(rig->queue[0].n, 1);
    kvc_list_init(&rig->queue[0]);
    expect("kv I18:");
}
END_TEST

START_TEST(a_load_that_nobody_waits_for)
{
    seq[0].n_loading++;
    expect("kv I19:");
}
END_TEST

START_TEST(an_announcement_of_what_is_published)
{
    rig->pend[seq[2].pend_head].pos = 0;
    expect("kv I20:");
}
END_TEST

START_TEST(an_announcement_that_is_lost)
{
    rig->pend_free = KV_NO_BLOCK;
    expect("kv I20:");
}
END_TEST

START_TEST(more_published_than_retired)
{
    seq[0].n_published = 3;
    expect("kv I21:");
}
END_TEST

START_TEST(a_claim_beyond_the_reserve)
{
    seq[0].claim.n[0]++;
    g->n_promised++;
    expect("kv I21:");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kvpool: cache, audit");
    TCase *t = tcase_create("broken invariants");
    tcase_add_checked_fixture(t, setup, NULL);
    const TTest *const tests[] = {
        a_count_of_states_that_is_wrong,
        a_block_that_left_the_free_list,
        a_held_block_on_the_free_list,
        a_holder_too_many,
        a_pin_too_many,
        a_copys_source_that_is_not_pinned,
        an_entry_of_an_earlier_life,
        an_entry_at_another_place,
        an_entry_of_no_block,
        a_table_that_is_too_short,
        a_table_that_starts_too_late,
        a_filled_count_that_differs_from_the_tables,
        a_sealed_block_that_nobody_writes,
        a_written_block_with_a_copy,
        a_promise_that_nobody_has,
        a_sum_of_filled_slots_that_is_wrong,
        a_generation_that_goes_back,
        a_frame_of_two_blocks,
        a_frame_that_is_lost,
        a_frame_that_is_free_twice,
        a_free_frame_that_is_held,
        a_block_that_is_nowhere,
        a_reader_too_few,
        a_running_entry_that_names_another_frame,
        a_hole_in_a_running_table,
        a_parked_entry_that_names_a_frame,
        a_count_of_paged_entries_that_is_wrong,
        a_block_on_another_list_than_its_own,
        a_list_whose_count_is_wrong,
        a_cached_block_out_of_the_index,
        an_indexed_block_whose_tokens_changed,
        an_indexed_block_that_no_bucket_holds,
        neighbours_that_are_not_linked,
        a_copy_that_is_out_and_not_counted,
        a_waiting_copy_that_left_its_queue,
        a_load_that_nobody_waits_for,
        an_announcement_of_what_is_published,
        an_announcement_that_is_lost,
        more_published_than_retired,
        a_claim_beyond_the_reserve,
    };
    for (uint32_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tcase_add_test(t, tests[i]);
    suite_add_tcase(s, t);
    return run_suite(s);
}
