/* engine/model/gguf in memory: accessors, every truncation, failing allocations. Broken files of all
 * kinds: test_gguf.py. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/base_test.h"
#include "base/mem.h"
#include "engine/model/gguf.h"
#include "tests/unit/run_suite.h"

static void put(struct buf *b, uint64_t v, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        buf_add_char(b, (char)(v >> (8 * i)));
}

static void put_string(struct buf *b, const char *s)
{
    put(b, strlen(s), 8);
    buf_add_c(b, s);
}

static void put_header(struct buf *b, uint64_t n_tensors, uint64_t n_values)
{
    buf_add_c(b, "GGUF");
    put(b, 3, 4);
    put(b, n_tensors, 8);
    put(b, n_values, 8);
}

static void put_scalar(struct buf *b, const char *key, enum gguf_type type, uint64_t v,
                       size_t n_bytes)
{
    put_string(b, key);
    put(b, type, 4);
    put(b, v, n_bytes);
}

static void put_array(struct buf *b, const char *key, enum gguf_type elem_type, uint64_t n)
{
    put_string(b, key);
    put(b, GGUF_ARRAY, 4);
    put(b, elem_type, 4);
    put(b, n, 8);
}

static uint64_t f32_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static uint64_t f64_bits(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof(bits));
    return bits;
}

/* Every type of value and two tensors. */
static void make_file(struct buf *b)
{
    put_header(b, 2, 16);
    put_scalar(b, "u8", GGUF_U8, 200, 1);
    put_scalar(b, "i8", GGUF_I8, (uint8_t)-5, 1);
    put_scalar(b, "u16", GGUF_U16, 60000, 2);
    put_scalar(b, "i16", GGUF_I16, (uint16_t)-300, 2);
    put_scalar(b, "u32", GGUF_U32, 4000000000u, 4);
    put_scalar(b, "i32", GGUF_I32, (uint32_t)-70000, 4);
    put_scalar(b, "u64", GGUF_U64, UINT64_MAX, 8);
    put_scalar(b, "i64", GGUF_I64, (uint64_t)INT64_MIN, 8);
    put_scalar(b, "f32", GGUF_F32, f32_bits(1.5f), 4);
    put_scalar(b, "f64", GGUF_F64, f64_bits(0.1), 8);
    put_scalar(b, "yes", GGUF_BOOL, 1, 1);
    put_string(b, "text");
    put(b, GGUF_STRING, 4);
    put_string(b, "hello");
    put_array(b, "strings", GGUF_STRING, 3);
    put_string(b, "");
    put_string(b, "b");
    put_string(b, "cc");
    put_array(b, "numbers", GGUF_I16, 2);
    put(b, (uint16_t)-1, 2);
    put(b, 7, 2);
    put_array(b, "reals", GGUF_F32, 3);
    put(b, f32_bits(2.75f), 4);
    put(b, f32_bits(NAN), 4);
    put(b, f32_bits(1e30f), 4);
    put_array(b, "none", GGUF_STRING, 0);
    put_string(b, "z.first");
    put(b, 2, 4);
    put(b, 4, 8);
    put(b, 2, 8);
    put(b, QUANT_F32, 4);
    put(b, 0, 8);
    put_string(b, "a.second");
    put(b, 1, 4);
    put(b, 32, 8);
    put(b, QUANT_Q8_0, 4);
    put(b, 32, 8);
    while (b->len % 32)
        buf_add_char(b, 0);
    for (int i = 0; i < 8; i++)
        put(b, f32_bits((float)i), 4);
    for (int i = 0; i < 34; i++)
        buf_add_char(b, (char)i);
}

/* Opens an exact copy at an odd address, so that the sanitizer sees any read over the end. */
static enum status open_copy(const char *bytes, size_t n, struct gguf **g, uint8_t **copy)
{
    struct err e = {0};
    *copy = malloc(n + 1);
    memcpy(*copy + 1, bytes, n);
    enum status st = gguf_open_memory(*copy + 1, n, g, &e);
    ck_assert(st == OK || (e.status == st && e.text[0]));
    return st;
}

static struct buf file;
static struct gguf *g;

static void set_up(void)
{
    make_file(&file);
    struct err e;
    ck_assert_msg(gguf_open_memory((const uint8_t *)file.ptr, file.len, &g, &e) == OK, "%s",
                  e.text);
}

static void tear_down(void)
{
    gguf_close(g);
    buf_release(&file);
}

START_TEST(integers_of_every_type_convert_when_they_fit)
{
    uint64_t u = 0;
    ck_assert(gguf_u64(g, "u8", &u) && u == 200);
    ck_assert(gguf_u64(g, "u16", &u) && u == 60000);
    ck_assert(gguf_u64(g, "u32", &u) && u == 4000000000u);
    ck_assert(gguf_u64(g, "u64", &u) && u == UINT64_MAX);
    static const char *const refused[] = {"i8",  "i16",  "i32",     "i64",     "f32",   "f64",
                                          "yes", "text", "strings", "numbers", "absent"};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        ck_assert_msg(!gguf_u64(g, refused[i], &u), "%s", refused[i]);
}
END_TEST

START_TEST(reals_booleans_and_strings_keep_their_kind)
{
    double d;
    bool b;
    struct str s;
    ck_assert(gguf_f64(g, "f32", &d) && d == 1.5);
    ck_assert(gguf_f64(g, "f64", &d) && d == 0.1);
    ck_assert(gguf_f64(g, "i8", &d) && d == -5);
    ck_assert(gguf_f64(g, "i32", &d) && d == -70000);
    ck_assert(gguf_f64(g, "i64", &d) && d == -0x1p63);
    ck_assert(gguf_f64(g, "u64", &d) && d == 0x1p64);
    ck_assert(!gguf_f64(g, "yes", &d) && !gguf_f64(g, "text", &d) && !gguf_f64(g, "reals", &d));
    ck_assert(gguf_bool(g, "yes", &b) && b);
    ck_assert(!gguf_bool(g, "u8", &b));
    ck_assert(gguf_string(g, "text", &s) && str_eq_c(s, "hello"));
    ck_assert(!gguf_string(g, "strings", &s) && !gguf_string(g, "absent", &s));
}
END_TEST

START_TEST(arrays_are_walked_to_their_end)
{
    static const char *const want[] = {"", "b", "cc"};
    struct str s;
    size_t cursor = 0, n = 0;
    while (gguf_array_next_string(gguf_find(g, "strings"), &cursor, &s))
        ck_assert(str_eq_c(s, want[n++]));
    ck_assert_uint_eq(n, 3);
    cursor = 0;
    ck_assert(!gguf_array_next_string(gguf_find(g, "none"), &cursor, &s));
    ck_assert(!gguf_array_next_string(gguf_find(g, "numbers"), &cursor, &s));
    ck_assert(!gguf_array_next_string(gguf_find(g, "text"), &cursor, &s));
    ck_assert_int_eq(gguf_array_i64(gguf_find(g, "numbers"), 0), -1);
    ck_assert(gguf_array_f64(gguf_find(g, "numbers"), 1) == 7);
    ck_assert(gguf_array_f64(gguf_find(g, "reals"), 0) == 2.75);
    ck_assert_int_eq(gguf_array_i64(gguf_find(g, "reals"), 0), 2);
    ck_assert_int_eq(gguf_array_i64(gguf_find(g, "reals"), 1), INT64_MIN);
    ck_assert_int_eq(gguf_array_i64(gguf_find(g, "reals"), 2), INT64_MIN);
}
END_TEST

START_TEST(tensors_are_found_by_name_with_their_bytes)
{
    const struct gguf_tensor *t = gguf_tensor_find(g, "z.first");
    ck_assert(t && t->type == QUANT_F32 && t->n_dims == 2 && t->n_bytes == 32);
    ck_assert(t->dim[0] == 4 && t->dim[1] == 2 && t->dim[2] == 1 && t->dim[3] == 1);
    t = gguf_tensor_find(g, "a.second");
    ck_assert(t && t->type == QUANT_Q8_0 && t->n_bytes == 34);
    ck_assert(t->data[33] == 33 && t->data + 34 == g->map + g->n_bytes);
    ck_assert_ptr_null(gguf_tensor_find(g, "a.secon"));
    ck_assert_ptr_null(gguf_tensor_find(g, "a.second2"));
    gguf_drop_pages(g, t); /* a file in memory: nothing to drop */
    ck_assert_uint_eq(t->data[1], 1);
}
END_TEST

START_TEST(every_truncation_is_refused_without_reading_over_the_end)
{
    for (size_t n = 0; n < file.len; n++) {
        struct gguf *cut;
        uint8_t *copy;
        ck_assert_int_eq(open_copy(file.ptr, n, &cut, &copy), ERR_FORMAT);
        free(copy);
    }
}
END_TEST

START_TEST(every_changed_byte_is_survived)
{
    static const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff};
    char *bytes = malloc(file.len);
    for (size_t at = 0; at < file.len; at++) {
        for (size_t i = 0; i < sizeof(values); i++) {
            struct gguf *changed;
            uint8_t *copy;
            memcpy(bytes, file.ptr, file.len);
            bytes[at] = (char)values[i];
            if (open_copy(bytes, file.len, &changed, &copy) == OK) {
                for (uint64_t t = 0; t < changed->n_tensors; t++)
                    ck_assert(changed->tensor[t].data + changed->tensor[t].n_bytes <=
                              changed->map + changed->n_bytes);
                gguf_close(changed);
            }
            free(copy);
        }
    }
    free(bytes);
}
END_TEST

START_TEST(lying_counts_allocate_no_directory)
{
    static const uint64_t counts[] = {1ull << 60, UINT64_MAX, 1u << 20, 1000};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (int tensors = 0; tensors < 2; tensors++) {
            struct buf b = {0};
            struct gguf *none;
            struct err e;
            put_header(&b, tensors ? counts[i] : 0, tensors ? 0 : counts[i]);
            uint64_t before = mem_thread_allocs();
            ck_assert_int_eq(gguf_open_memory((const uint8_t *)b.ptr, b.len, &none, &e),
                             ERR_FORMAT);
            /* The struct itself; with no values also their empty directory and its index. */
            ck_assert_uint_le(mem_thread_allocs() - before, 4);
            buf_release(&b);
        }
    }
}
END_TEST

START_TEST(failing_allocations_are_errors)
{
    enum { N_TRIES = 8 };
    int n_failed = 0;
    for (uint64_t n = 1; n <= N_TRIES; n++) {
        struct gguf *other;
        struct err e;
        mem_fail_after(n);
        enum status st = gguf_open_memory((const uint8_t *)file.ptr, file.len, &other, &e);
        mem_fail_after(0);
        if (st == OK) {
            gguf_close(other);
            continue;
        }
        ck_assert_int_eq(st, ERR_NO_MEMORY);
        n_failed++;
    }
    ck_assert_int_ge(n_failed, 5);
}
END_TEST

START_TEST(names_are_printed_without_control_characters)
{
    char out[8];
    ck_assert_str_eq(gguf_printable(STR_LIT("a\n\x1b\x80z"), out, sizeof(out)), "a???z");
    ck_assert_str_eq(gguf_printable(STR_LIT("longer than that"), out, sizeof(out)), "longer?");
    ck_assert_str_eq(gguf_printable(STR_LIT(""), out, sizeof(out)), "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf");
    TCase *t = tcase_create("gguf");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, integers_of_every_type_convert_when_they_fit);
    tcase_add_test(t, reals_booleans_and_strings_keep_their_kind);
    tcase_add_test(t, arrays_are_walked_to_their_end);
    tcase_add_test(t, tensors_are_found_by_name_with_their_bytes);
    tcase_add_test(t, every_truncation_is_refused_without_reading_over_the_end);
    tcase_add_test(t, every_changed_byte_is_survived);
    tcase_add_test(t, lying_counts_allocate_no_directory);
    tcase_add_test(t, failing_allocations_are_errors);
    tcase_add_test(t, names_are_printed_without_control_characters);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
