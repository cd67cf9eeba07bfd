/* config/models: known names are looked up in the cache, paths are taken as they are. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/models.h"
#include "tests/unit/run_suite.h"

static char root[] = "/tmp/millrace-models-XXXXXX";

static void make_root(void)
{
    ck_assert_ptr_nonnull(mkdtemp(root));
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", root, 1), 0);
    ck_assert_int_eq(setenv("HOME", "/nonexistent", 1), 0);
}

static void remove_root(void)
{
    char command[100];
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    ck_assert_int_eq(system(command), 0);
}

/* Makes an empty file below root, and the folders above it. */
static void touch(const char *name, struct buf *path)
{
    buf_clear(path);
    buf_printf(path, "%s/%s", root, name);
    for (char *p = path->ptr + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(path->ptr, 0755);
        *p = '/';
    }
    FILE *f = fopen(path->ptr, "w");
    ck_assert_ptr_nonnull(f);
    fclose(f);
}

START_TEST(a_known_name_gives_its_file_in_the_cache)
{
    struct buf made = {0}, found = {0};
    struct err e;
    touch("millrace/models/smollm2-135m.gguf", &made);
    ck_assert_msg(model_path_find("smollm2-135m", &found, &e) == OK, "%s", e.text);
    ck_assert_str_eq(found.ptr, made.ptr);
    buf_release(&made);
    buf_release(&found);
}
END_TEST

START_TEST(a_known_name_that_is_not_there_says_how_to_fetch_it)
{
    struct buf found = {0};
    struct err e;
    ck_assert_int_eq(model_path_find("gemma3-270m", &found, &e), ERR_NOT_FOUND);
    ck_assert_msg(strstr(e.text, "put the file gemma-3-270m-q4_k_m.gguf "
                                 "(253113024 bytes) there"),
                  "%s", e.text);
    ck_assert_str_eq(e.param, "model");
    buf_release(&found);
}
END_TEST

START_TEST(a_path_is_taken_as_it_is)
{
    struct buf made = {0}, found = {0};
    struct err e;
    touch("my model.gguf", &made);
    ck_assert_int_eq(model_path_find(made.ptr, &found, &e), OK);
    ck_assert_str_eq(found.ptr, made.ptr);
    buf_release(&made);
    buf_release(&found);
}
END_TEST

START_TEST(anything_else_is_refused_with_the_known_names)
{
    struct buf found = {0};
    struct err e;
    ck_assert_int_eq(model_path_find("smollm2", &found, &e), ERR_NOT_FOUND);
    ck_assert_msg(strstr(e.text, "smollm2-135m, gemma3-270m"), "%s", e.text);
    ck_assert_int_eq(model_path_find(root, &found, &e), ERR_IO);
    ck_assert_msg(strstr(e.text, "Is a directory"), "%s", e.text);
    ck_assert_int_eq(model_path_find("/dev/null", &found, &e), ERR_IO);
    ck_assert_msg(strstr(e.text, "not a regular file"), "%s", e.text);
    ck_assert_int_eq(model_path_find("", &found, &e), ERR_NOT_FOUND);
    buf_release(&found);
}
END_TEST

START_TEST(the_cache_follows_xdg_then_home)
{
    struct buf path = {0};
    struct err e;
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "/home/u", 1);
    ck_assert_int_eq(model_cache_folder(&path, &e), OK);
    ck_assert_str_eq(path.ptr, "/home/u/.cache/millrace/models");
    unsetenv("HOME");
    ck_assert_int_eq(model_cache_folder(&path, &e), ERR_NOT_FOUND);
    ck_assert_int_eq(model_path_find("smollm2-135m", &path, &e), ERR_NOT_FOUND);
    ck_assert_msg(strstr(e.text, "HOME"), "%s", e.text);
    buf_release(&path);
}
END_TEST

START_TEST(the_id_never_shows_a_path)
{
    static const char *const rows[][2] = {{"smollm2-135m", "smollm2-135m"},
                                          {"/a/b/My-Model.Q4_1.gguf", "My-Model.Q4_1"},
                                          {"x.gguf", "x"},
                                          {"dir/plain", "plain"},
                                          {".gguf", ".gguf"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf id = {0};
        model_default_id(rows[i][0], &id);
        ck_assert_str_eq(id.ptr, rows[i][1]);
        buf_release(&id);
    }
}
END_TEST

START_TEST(the_table_is_well_formed)
{
    for (size_t i = 0; i < n_known_models; i++) {
        const struct known_model *m = &known_models[i];
        ck_assert_uint_eq(strlen(m->sha256), 64);
        ck_assert_uint_eq(strspn(m->sha256, "0123456789abcdef"), 64);
        ck_assert_uint_gt(m->size_bytes, 1000000);
        ck_assert(m->licence[0] && m->file[0] && m->note[0]);
        ck_assert_ptr_eq(known_model_find(m->name), m);
        ck_assert_ptr_null(strchr(m->name, '/'));
    }
    ck_assert_ptr_null(known_model_find("unknown"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config/models");
    TCase *t = tcase_create("models");
    tcase_add_checked_fixture(t, make_root, remove_root);
    tcase_add_test(t, a_known_name_gives_its_file_in_the_cache);
    tcase_add_test(t, a_known_name_that_is_not_there_says_how_to_fetch_it);
    tcase_add_test(t, a_path_is_taken_as_it_is);
    tcase_add_test(t, anything_else_is_refused_with_the_known_names);
    tcase_add_test(t, the_cache_follows_xdg_then_home);
    tcase_add_test(t, the_id_never_shows_a_path);
    tcase_add_test(t, the_table_is_well_formed);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
