/* engine/text/stop against the definition, over random stop strings and texts cut everywhere. */
#include <check.h>
#include <stdlib.h>

#include "base/buf.h"
#include "engine/text/text.h"
#include "tests/unit/run_suite.h"

static struct stop_set set_of(const char *const *strings)
{
    struct stop_set set = {0};
    for (; *strings; strings++) {
        set.s[set.n] = str_of(*strings);
        if (set.s[set.n].len > set.longest)
            set.longest = (uint32_t)set.s[set.n].len;
        set.n++;
    }
    return set;
}

/* Earliest start, then shortest; in one look at the whole text. */
static int naive(const struct stop_set *set, struct str text, size_t *start)
{
    for (*start = 0; *start < text.len; (*start)++) {
        int best = -1;
        for (uint32_t i = 0; i < set->n; i++) {
            struct str rest = {text.ptr + *start, text.len - *start};
            if (str_starts(rest, set->s[i]) && (best < 0 || set->s[i].len < set->s[best].len))
                best = (int)i;
        }
        if (best >= 0)
            return best;
    }
    return -1;
}

/* Feeds text in pieces that end at the set bits of cuts; out: all that came out. */
static int feed(const struct stop_set *set, struct str text, uint32_t cuts, bool include,
                struct buf *out)
{
    struct stop_scan scan;
    stop_scan_init(&scan, set);
    char part[2 * STOP_MAX_BYTES];
    uint32_t n;
    size_t from = 0;
    for (size_t i = 1; i <= text.len; i++) {
        if (i < text.len && !(cuts >> (i % 31) & 1))
            continue;
        uint32_t held = scan.n_held;
        int hit = stop_scan_push(&scan, (struct str){text.ptr + from, i - from}, include, part, &n);
        EXPECT(n <= held + (i - from));
        buf_add(out, part, n);
        if (hit >= 0)
            return hit;
        EXPECT(scan.n_held < set->longest);
        from = i;
    }
    int hit = stop_scan_flush(&scan, part, &n);
    buf_add(out, part, n);
    return hit;
}

static void check_cut(const struct stop_set *set, struct str text, uint32_t cuts, bool include)
{
    struct buf out = {0};
    size_t start;
    int want = naive(set, text, &start);
    int got = feed(set, text, cuts, include, &out);
    EXPECT(want < 0 ? got < 0 : got >= 0 && str_eq(set->s[got], set->s[want]));
    size_t len = want < 0 ? text.len : start + (include ? set->s[want].len : 0);
    EXPECT(out.len == len && memcmp(out.ptr ? out.ptr : "", text.ptr, len) == 0);
    buf_release(&out);
}

START_TEST(random_strings_match_the_definition_however_the_text_is_cut)
{
    srand(7);
    for (int round = 0; round < 60000; round++) {
        char strings[4][9] = {{0}}, text[25];
        const char *list[5] = {0};
        int n = 1 + rand() % 4, alphabet = 2 + rand() % 2;
        for (int i = 0; i < n; i++) {
            int len = 1 + rand() % (round % 3 ? 4 : 8);
            for (int k = 0; k < len; k++)
                strings[i][k] = (char)('a' + rand() % alphabet);
            list[i] = strings[i];
        }
        size_t len = (size_t)(rand() % 25);
        for (size_t k = 0; k < len; k++)
            text[k] = (char)('a' + rand() % alphabet);
        struct stop_set set = set_of(list);
        struct str view = {text, len};
        check_cut(&set, view, 0, round & 1); /* whole */
        check_cut(&set, view, 0x7fffffff, round & 1); /* every byte alone */
        check_cut(&set, view, (uint32_t)rand(), round & 1);
    }
}
END_TEST

START_TEST(every_single_cut_of_a_text_gives_the_same)
{
    const char *list[] = {"END", "\n\nUser:", "</s>", "EN", NULL};
    struct stop_set set = set_of(list);
    const char *texts[] = {"say ENDless", "a\n\nUse\n\nUser: b", "x</</s></s>",
                           "EEEN",        "E\n\nUser",           ""};
    for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++)
        for (size_t cut = 0; cut < 31; cut++)
            for (int include = 0; include < 2; include++)
                check_cut(&set, str_of(texts[t]), 1u << cut, include);
}
END_TEST

START_TEST(nothing_is_held_that_can_no_longer_match)
{
    const char *list[] = {"stop", NULL};
    struct stop_set set = set_of(list);
    struct stop_scan scan;
    char out[64];
    uint32_t n;
    stop_scan_init(&scan, &set);
    ck_assert_int_eq(stop_scan_push(&scan, STR_LIT("a sto"), false, out, &n), -1);
    ck_assert_uint_eq(n, 2);
    ck_assert_int_eq(stop_scan_push(&scan, STR_LIT("ne"), false, out, &n), -1);
    ck_assert_uint_eq(n, 5);
    ck_assert_mem_eq(out, "stone", 5);
    ck_assert_uint_eq(scan.n_held, 0);
}
END_TEST

/* "bc" is complete first, but "abcd" starts earlier and could still come. */
START_TEST(an_earlier_start_that_may_still_complete_is_waited_for)
{
    const char *list[] = {"bc", "abcd", NULL};
    struct stop_set set = set_of(list);
    struct stop_scan scan;
    char out[64];
    uint32_t n;
    stop_scan_init(&scan, &set);
    ck_assert_int_eq(stop_scan_push(&scan, STR_LIT("xabc"), false, out, &n), -1);
    ck_assert_uint_eq(n, 1);
    ck_assert_int_eq(stop_scan_push(&scan, STR_LIT("d"), false, out, &n), 1);
    ck_assert_uint_eq(n, 0);
    stop_scan_init(&scan, &set);
    ck_assert_int_eq(stop_scan_push(&scan, STR_LIT("xabc"), true, out, &n), -1);
    ck_assert_int_eq(stop_scan_flush(&scan, out, &n), 0);
    ck_assert_uint_eq(n, 3);
    ck_assert_mem_eq(out, "abc", 3);
}
END_TEST

START_TEST(the_longest_string_allowed_works)
{
    char big[STOP_MAX_BYTES + 1];
    memset(big, 'z', STOP_MAX_BYTES);
    big[STOP_MAX_BYTES] = 0;
    const char *list[] = {big, NULL};
    struct stop_set set = set_of(list);
    struct stop_scan scan;
    char out[2 * STOP_MAX_BYTES];
    uint32_t n;
    stop_scan_init(&scan, &set);
    for (int i = 0; i < STOP_MAX_BYTES - 1; i++) {
        EXPECT(stop_scan_push(&scan, STR_LIT("z"), false, out, &n) == -1 && n == 0);
    }
    ck_assert_uint_eq(scan.n_held, STOP_MAX_BYTES - 1);
    ck_assert_int_eq(stop_scan_push(&scan, STR_LIT("zz"), true, out, &n), 0);
    ck_assert_uint_eq(n, STOP_MAX_BYTES);
}
END_TEST

START_TEST(nul_bytes_are_data)
{
    struct stop_set set = {.s = {{"\0b", 2}}, .n = 1, .longest = 2};
    struct stop_scan scan;
    char out[16];
    uint32_t n;
    stop_scan_init(&scan, &set);
    ck_assert_int_eq(stop_scan_push(&scan, (struct str){"a\0\0", 3}, false, out, &n), -1);
    ck_assert_uint_eq(n, 2);
    ck_assert_int_eq(stop_scan_push(&scan, STR_LIT("b"), false, out, &n), 0);
    ck_assert_uint_eq(n, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stop");
    TCase *c = tcase_create("all");
    tcase_add_test(c, random_strings_match_the_definition_however_the_text_is_cut);
    tcase_add_test(c, every_single_cut_of_a_text_gives_the_same);
    tcase_add_test(c, nothing_is_held_that_can_no_longer_match);
    tcase_add_test(c, an_earlier_start_that_may_still_complete_is_waited_for);
    tcase_add_test(c, the_longest_string_allowed_works);
    tcase_add_test(c, nul_bytes_are_data);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
