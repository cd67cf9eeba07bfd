/* kvpool/named: names keep their tokens across restarts and belong to their owner; a damaged file
 * is ignored. */
#include "base/thread.h"
#include "tests/unit/kvpool/disk_rig.h"

struct table {
    char folder[64];
    struct kv_named_options o;
    struct kv_named *named;
};

static void table_init(struct table *t)
{
    struct err e;
    t->o = (struct kv_named_options){
        .path = t->folder, .max_bytes = 1 << 30, .model = {1, 2, 3, 4, 5, 6, 7, 8, 9}};
    snprintf(t->folder, sizeof(t->folder), "/tmp/millrace-named-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(t->folder));
    ck_assert_int_eq(kv_named_open(&t->o, &t->named, &e), OK);
}

static void table_restart(struct table *t)
{
    struct err e;
    kv_named_close(t->named);
    ck_assert_int_eq(kv_named_open(&t->o, &t->named, &e), OK);
}

static void table_release(struct table *t)
{
    kv_named_close(t->named);
    nftw(t->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int32_t tokens[64];
static struct kv_key keys[64];

static struct kv_named_prefix prefix_of(const char *owner, const char *name, uint32_t n)
{
    for (int i = 0; i < 64; i++) {
        tokens[i] = (int32_t)n * 100 + i;
        keys[i] = key_of(n + (uint32_t)i);
    }
    return (struct kv_named_prefix){.owner = str_of(owner),
                                    .name = str_of(name),
                                    .salt = STR_LIT("s\0t"),
                                    .tokens = tokens,
                                    .n_tokens = n,
                                    .keys = keys,
                                    .n_keys = n / 8,
                                    .domain = n * 7,
                                    .made_unix_s = 1000 + n};
}

static void expect_is(const struct kv_named_prefix *got, const char *owner, const char *name,
                      uint32_t n)
{
    struct kv_named_prefix p = prefix_of(owner, name, n);
    EXPECT(got && str_eq(got->owner, p.owner) && str_eq(got->name, p.name));
    EXPECT(str_eq(got->salt, p.salt) && got->n_tokens == n && got->n_keys == n / 8);
    EXPECT(memcmp(got->tokens, tokens, n * sizeof(*tokens)) == 0);
    EXPECT(memcmp(got->keys, keys, n / 8 * sizeof(*keys)) == 0);
    EXPECT(got->domain == p.domain && got->made_unix_s == p.made_unix_s);
}

static void expect_has(struct table *t, const char *owner, const char *name, uint32_t n)
{
    struct err e;
    struct kv_named_prefix *got;
    EXPECT(kv_named_get(t->named, str_of(owner), str_of(name), &got, &e) == OK);
    expect_is(got, owner, name, n);
    kv_named_prefix_free(got);
}

static bool is_there(struct table *t, const char *owner, const char *name)
{
    struct err e;
    struct kv_named_prefix *got;
    enum status status = kv_named_get(t->named, str_of(owner), str_of(name), &got, &e);
    EXPECT((status == OK) == (got != NULL) && (status == OK || status == ERR_NOT_FOUND));
    kv_named_prefix_free(got);
    return status == OK;
}

static enum status put_prefix(struct table *t, const char *owner, const char *name, uint32_t n)
{
    struct err e;
    struct kv_named_prefix p = prefix_of(owner, name, n);
    return kv_named_put(t->named, &p, NULL, &e);
}

START_TEST(a_name_keeps_what_it_stands_for_across_restarts)
{
    struct table t;
    struct err e;
    struct kv_named_prefix *old;
    table_init(&t);
    ck_assert_int_eq(put_prefix(&t, "", "bot", 63), OK);
    ck_assert_int_eq(put_prefix(&t, "alice", "a/b ../\xff", 8), OK);
    for (int round = 0; round < 2; round++) {
        expect_has(&t, "", "bot", 63);
        expect_has(&t, "alice", "a/b ../\xff", 8);
        table_restart(&t);
    }
    struct kv_named_prefix p = prefix_of("", "bot", 17);
    ck_assert_int_eq(kv_named_put(t.named, &p, &old, &e), OK);
    expect_is(old, "", "bot", 63);
    kv_named_prefix_free(old);
    table_restart(&t);
    expect_has(&t, "", "bot", 17);
    ck_assert_int_eq(kv_named_delete(t.named, str_of(""), str_of("bot"), &old, &e), OK);
    expect_is(old, "", "bot", 17);
    kv_named_prefix_free(old);
    for (int round = 0; round < 2; round++) {
        ck_assert(!is_there(&t, "", "bot") && is_there(&t, "alice", "a/b ../\xff"));
        ck_assert_int_eq(kv_named_delete(t.named, str_of(""), str_of("bot"), &old, &e),
                         ERR_NOT_FOUND);
        ck_assert_str_eq(e.text, "no prefix is named 'bot'");
        ck_assert_ptr_null(old);
        table_restart(&t);
    }
    table_release(&t);
}
END_TEST

/* Each owner in turn takes what it can get: half of what those before it left. */
START_TEST(an_owner_of_several_leaves_as_much_as_it_holds)
{
    struct table t;
    struct err e;
    uint32_t n[3] = {0, 0, 0};
    table_init(&t);
    for (uint32_t k = 0; k < 3; k++) {
        for (;; n[k]++) {
            char owner[8], name[16];
            snprintf(owner, sizeof(owner), "o%u", k);
            snprintf(name, sizeof(name), "n%u", n[k]);
            struct kv_named_prefix p = prefix_of(owner, name, 1);
            p.shared = true;
            if (kv_named_put(t.named, &p, NULL, &e))
                break;
        }
        ck_assert_int_eq(e.status, ERR_TOO_LARGE);
        ck_assert_str_eq(e.code, "key_prefixes_full");
    }
    ck_assert_uint_eq(n[0], KV_NAMED_MAX / 2);
    ck_assert_uint_eq(n[1], KV_NAMED_MAX / 4);
    ck_assert_uint_eq(n[2], KV_NAMED_MAX / 8);
    struct kv_named_prefix again = prefix_of("o0", "n7", 40);
    again.shared = true;
    ck_assert_int_eq(kv_named_put(t.named, &again, NULL, &e), OK);
    ck_assert(kv_named_memory(t.named) > n[0] * sizeof(again));
    table_release(&t);
}
END_TEST

static void count_one(void *arg, const struct kv_named_prefix *p)
{
    uint32_t *seen = arg;
    EXPECT(str_eq_c(p->owner, "alice"));
    *seen = *seen * 100 + p->n_tokens;
}

START_TEST(an_owner_sees_its_own_names_only_oldest_first)
{
    struct table t;
    uint32_t seen = 0;
    table_init(&t);
    ck_assert_int_eq(put_prefix(&t, "alice", "x", 10), OK);
    ck_assert_int_eq(put_prefix(&t, "bob", "x", 11), OK);
    ck_assert_int_eq(put_prefix(&t, "", "x", 13), OK);
    ck_assert_int_eq(put_prefix(&t, "alice", "y", 12), OK);
    table_restart(&t);
    expect_has(&t, "alice", "x", 10);
    expect_has(&t, "bob", "x", 11);
    ck_assert(!is_there(&t, "bob", "y") && !is_there(&t, "al", "icex"));
    kv_named_each(t.named, str_of("alice"), count_one, &seen);
    ck_assert_uint_eq(seen, 1012);
    table_release(&t);
}
END_TEST

static void spell(void *arg, const struct kv_named_prefix *p)
{
    char *text = arg;
    strncat(text, p->name.ptr, p->name.len);
}

START_TEST(names_of_one_second_keep_their_order_across_restarts)
{
    struct table t;
    struct err e;
    table_init(&t);
    for (const char *c = "qzamkybd"; *c; c++) {
        struct kv_named_prefix p = prefix_of("alice", "", 8);
        p.name = (struct str){c, 1};
        p.made_unix_s = 1000;
        ck_assert_int_eq(kv_named_put(t.named, &p, NULL, &e), OK);
    }
    struct kv_named_prefix again = prefix_of("alice", "a", 9);
    again.made_unix_s = 2000;
    ck_assert_int_eq(kv_named_put(t.named, &again, NULL, &e), OK);
    for (int round = 0; round < 2; round++) {
        char order[16] = "";
        kv_named_each(t.named, str_of("alice"), spell, order);
        ck_assert_str_eq(order, "qzamkybd");
        table_restart(&t);
    }
    table_release(&t);
}
END_TEST

START_TEST(bounds_are_refused_with_value_and_limit)
{
    struct table t;
    struct err e;
    char longer[600];
    table_init(&t);
    memset(longer, 'x', sizeof(longer));
    struct kv_named_prefix p = prefix_of("", "", 8);
    ck_assert_int_eq(kv_named_put(t.named, &p, NULL, &e), ERR_INVALID);
    ck_assert_str_eq(e.text, "name of a prefix has 0 bytes, not 1..64");
    p.name = (struct str){longer, 65};
    ck_assert_int_eq(kv_named_put(t.named, &p, NULL, &e), ERR_INVALID);
    p.name = (struct str){longer, 64};
    p.owner = (struct str){longer, 49};
    ck_assert_int_eq(kv_named_put(t.named, &p, NULL, &e), ERR_INVALID);
    ck_assert_str_eq(e.text, "owner of a prefix has 49 bytes, over 48");
    p.owner = (struct str){longer, 48};
    p.salt = (struct str){longer, 513};
    ck_assert_int_eq(kv_named_put(t.named, &p, NULL, &e), ERR_INVALID);
    ck_assert_str_eq(e.text, "salt of a prefix has 513 bytes, over 512");
    p.salt = (struct str){longer, 512};
    p.n_tokens = 0;
    p.n_keys = 0;
    ck_assert_int_eq(kv_named_put(t.named, &p, NULL, &e), ERR_TOO_LARGE);
    ck_assert_str_eq(e.text, "prefix has 0 tokens, not 1..1048576");
    p.n_tokens = KV_NAMED_TOKENS + 1;
    ck_assert_int_eq(kv_named_put(t.named, &p, NULL, &e), ERR_TOO_LARGE);
    p.n_tokens = 8;
    p.n_keys = 9;
    ck_assert_int_eq(kv_named_put(t.named, &p, NULL, &e), ERR_INVALID);
    ck_assert_str_eq(e.text, "prefix of 8 tokens has 9 blocks");
    p.n_keys = 1;
    ck_assert_int_eq(kv_named_put(t.named, &p, NULL, &e), OK); /* the longest of everything */
    table_restart(&t);
    struct kv_named_prefix *got;
    ck_assert_int_eq(kv_named_get(t.named, p.owner, p.name, &got, &e), OK);
    kv_named_prefix_free(got);

    int32_t *many = mem_zalloc(KV_NAMED_TOKENS * sizeof(*many));
    p = (struct kv_named_prefix){.tokens = many, .n_tokens = KV_NAMED_TOKENS};
    for (int i = 0; i < 4; i++) {
        char name[2] = {(char)('a' + i), 0};
        p.name = str_of(name);
        ck_assert_int_eq(kv_named_put(t.named, &p, NULL, &e), i < 3 ? OK : ERR_TOO_LARGE);
    }
    ck_assert_str_eq(e.text, "named prefixes would have 4194312 tokens together, over 4194304");
    mem_free(many);
    table_release(&t);
}
END_TEST

START_TEST(there_are_only_so_many_names)
{
    struct table t = {0};
    struct err e;
    ck_assert_int_eq(kv_named_open(&(struct kv_named_options){.path = ""}, &t.named, &e), OK);
    for (int i = 0; i < KV_NAMED_MAX; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        EXPECT(put_prefix(&t, "", name, 8) == OK);
    }
    ck_assert_int_eq(put_prefix(&t, "", "one more", 8), ERR_TOO_LARGE);
    ck_assert_int_eq(put_prefix(&t, "", "n7", 16), OK);
    expect_has(&t, "", "n7", 16);
    ck_assert_uint_eq(kv_named_n_keys(t.named), KV_NAMED_MAX + 1);
    kv_named_close(t.named);
}
END_TEST

START_TEST(a_file_with_a_flipped_bit_or_another_name_is_left_out)
{
    struct table t;
    char path[200], other[200];
    table_init(&t);
    ck_assert_int_eq(put_prefix(&t, "o", "n", 16), OK);
    snprintf(path, sizeof(path), "%s/kv/names/0102030405060708-6f-6e", t.folder);
    snprintf(other, sizeof(other), "%s/kv/names/0102030405060708-6f-6f", t.folder);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    for (off_t at = 0; at < st.st_size; at++) {
        uint8_t byte;
        int fd = open(path, O_RDWR);
        EXPECT(fd >= 0 && pread(fd, &byte, 1, at) == 1);
        byte ^= (uint8_t)(1 << at % 8);
        EXPECT(pwrite(fd, &byte, 1, at) == 1);
        table_restart(&t);
        EXPECT(!is_there(&t, "o", "n"));
        byte ^= (uint8_t)(1 << at % 8);
        EXPECT(pwrite(fd, &byte, 1, at) == 1);
        close(fd);
    }
    table_restart(&t);
    ck_assert(is_there(&t, "o", "n"));
    ck_assert_int_eq(rename(path, other), 0);
    table_restart(&t);
    ck_assert(!is_there(&t, "o", "n") && !is_there(&t, "o", "o"));
    ck_assert_int_eq(truncate(other, 30), 0);
    snprintf(path, sizeof(path), "%s/kv/names/writing.tmp", t.folder);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    table_restart(&t);
    ck_assert_int_eq(access(path, F_OK), -1);
    table_release(&t);
}
END_TEST

static uint64_t names_use(const struct table *t)
{
    char path[128];
    uint64_t n = 0;
    snprintf(path, sizeof(path), "%s/kv/names", t->folder);
    DIR *dir = opendir(path);
    for (struct dirent *f; (f = readdir(dir));) {
        struct stat st;
        EXPECT(fstatat(dirfd(dir), f->d_name, &st, 0) == 0);
        n += S_ISREG(st.st_mode) ? disk_units((uint64_t)st.st_size) : 0;
    }
    closedir(dir);
    return n;
}

static void count_name(void *arg, const struct kv_named_prefix *p)
{
    (void)p;
    ++*(int *)arg;
}

/* Token ids of one model are nonsense to another, be its vocabulary as large or larger. */
START_TEST(two_models_on_one_folder_keep_their_names_apart)
{
    struct table t;
    struct err e;
    table_init(&t);
    ck_assert_int_eq(put_prefix(&t, "o", "bot", 16), OK);
    /* One that differs in what the file's name shows, one that differs behind it. */
    for (int byte = 0; byte < 16; byte += 15) {
        int n = 0;
        t.o.model[byte] ^= 0x80;
        table_restart(&t);
        ck_assert(!is_there(&t, "o", "bot"));
        kv_named_each(t.named, str_of("o"), count_name, &n);
        ck_assert_int_eq(n, 0);
        ck_assert_int_eq(kv_named_delete(t.named, str_of("o"), str_of("bot"), NULL, &e),
                         ERR_NOT_FOUND);
        ck_assert_uint_eq(kv_named_n_keys(t.named), 16 / 8); /* its blocks stay pinned */
        t.o.model[byte] ^= 0x80;
    }
    t.o.model[0] ^= 0x80;
    table_restart(&t);
    ck_assert_int_eq(put_prefix(&t, "o", "bot", 24), OK);
    expect_has(&t, "o", "bot", 24);
    t.o.model[0] ^= 0x80;
    table_restart(&t);
    expect_has(&t, "o", "bot", 16);
    ck_assert_uint_eq(kv_named_n_keys(t.named), 16 / 8 + 24 / 8);
    ck_assert_int_eq(kv_named_delete(t.named, str_of("o"), str_of("bot"), NULL, &e), OK);
    t.o.model[0] ^= 0x80;
    table_restart(&t);
    expect_has(&t, "o", "bot", 24);
    table_release(&t);
}
END_TEST

START_TEST(names_take_no_more_of_the_disk_than_their_share)
{
    enum { UNITS = 6 };
    struct table t;
    struct err e;
    char name[16];
    table_init(&t);
    t.o.max_bytes = UNITS * DISK_UNIT_BYTES;
    table_restart(&t);
    for (int i = 0; i < UNITS; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        ck_assert_int_eq(put_prefix(&t, "", name, 16), OK);
        ck_assert_uint_eq(kv_named_bytes(t.named), names_use(&t));
    }
    for (int round = 0; round < 3; round++) {
        struct kv_named_prefix p = prefix_of("", round == 1 ? "n0" : "more", 8);
        ck_assert_int_eq(kv_named_put(t.named, &p, NULL, &e), ERR_TOO_LARGE);
        ck_assert_ptr_nonnull(strstr(e.text, "28672 bytes of the disk"));
        ck_assert_ptr_nonnull(strstr(e.text, "prefix.disk.bytes, 24576"));
        ck_assert_uint_eq(names_use(&t), UNITS * DISK_UNIT_BYTES);
        t.o.model[3] ^= round == 1; /* those of another model count too */
        table_restart(&t);
        ck_assert_uint_eq(kv_named_bytes(t.named), names_use(&t));
    }
    t.o.model[3] ^= 1;
    table_restart(&t);
    ck_assert_int_eq(kv_named_delete(t.named, str_of(""), str_of("n3"), NULL, &e), OK);
    ck_assert_int_eq(put_prefix(&t, "", "n0", 24), OK);
    ck_assert_int_eq(put_prefix(&t, "", "more", 24), OK);
    ck_assert_uint_eq(kv_named_bytes(t.named), UNITS * DISK_UNIT_BYTES);
    ck_assert_uint_eq(names_use(&t), UNITS * DISK_UNIT_BYTES);
    table_release(&t);
}
END_TEST

START_TEST(one_process_at_a_time_has_the_folder)
{
    struct table t;
    struct kv_named *second;
    struct err e;
    table_init(&t);
    ck_assert_int_eq(kv_named_open(&t.o, &second, &e), ERR_BUSY);
    ck_assert_ptr_nonnull(strstr(e.text, "/kv/names' is used by another process"));
    table_release(&t);
}
END_TEST

START_TEST(a_put_that_cannot_be_written_changes_nothing)
{
    struct table t;
    struct err e;
    table_init(&t);
    ck_assert_int_eq(put_prefix(&t, "", "a", 8), OK);
    nftw(t.folder, remove_one, 16, FTW_DEPTH | FTW_PHYS); /* the folder is gone, its handle stays */
    struct kv_named_prefix p = prefix_of("", "a", 16);
    ck_assert_int_eq(kv_named_put(t.named, &p, NULL, &e), ERR_IO);
    ck_assert_str_eq(e.text, "cannot write a named prefix: No such file or directory");
    expect_has(&t, "", "a", 8);
    ck_assert_int_eq(kv_named_delete(t.named, str_of(""), str_of("a"), NULL, &e), OK);
    kv_named_close(t.named);
}
END_TEST

static void churn(void *arg)
{
    struct kv_named *named = arg;
    struct err e;
    int32_t some[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct kv_named_prefix p = {.name = STR_LIT("n"), .tokens = some, .n_tokens = 8}, *got;
    for (int i = 0; i < 500; i++) {
        EXPECT(kv_named_put(named, &p, NULL, &e) == OK);
        if (kv_named_get(named, p.owner, p.name, &got, &e) == OK)
            EXPECT(got->n_tokens == 8 && got->tokens[7] == 8);
        kv_named_prefix_free(got);
        kv_named_delete(named, p.owner, p.name, NULL, &e);
    }
}

START_TEST(any_thread_may_use_the_table)
{
    struct kv_named *named;
    struct thread thread[3];
    struct err e;
    ck_assert_int_eq(kv_named_open(&(struct kv_named_options){.path = ""}, &named, &e), OK);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(thread_start(&thread[i], "churn", churn, named, &e), OK);
    for (int i = 0; i < 3; i++)
        thread_join(&thread[i]);
    ck_assert_uint_eq(kv_named_n_keys(named), 0);
    kv_named_close(named);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("named");
    TCase *t = tcase_create("named");
    tcase_add_test(t, a_name_keeps_what_it_stands_for_across_restarts);
    tcase_add_test(t, an_owner_of_several_leaves_as_much_as_it_holds);
    tcase_add_test(t, an_owner_sees_its_own_names_only_oldest_first);
    tcase_add_test(t, names_of_one_second_keep_their_order_across_restarts);
    tcase_add_test(t, two_models_on_one_folder_keep_their_names_apart);
    tcase_add_test(t, names_take_no_more_of_the_disk_than_their_share);
    tcase_add_test(t, bounds_are_refused_with_value_and_limit);
    tcase_add_test(t, there_are_only_so_many_names);
    tcase_add_test(t, a_file_with_a_flipped_bit_or_another_name_is_left_out);
    tcase_add_test(t, one_process_at_a_time_has_the_folder);
    tcase_add_test(t, a_put_that_cannot_be_written_changes_nothing);
    tcase_add_test(t, any_thread_may_use_the_table);
    suite_add_tcase(s, t);
    return run_suite(s);
}
