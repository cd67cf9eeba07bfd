/* Keys, tenants, limits and their reload. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/run_suite.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "server/auth.h"

static struct settings set;
static struct auth auth;
static struct err e;
static char path[64];

static void write_keys(const char *text)
{
    FILE *f = fopen(path, "w");
    ck_assert(f && fwrite(text, 1, strlen(text), f) == strlen(text));
    fclose(f);
}

static void option(const char *name, const char *value)
{
    ck_assert_msg(settings_set(&set, name, value, &e) == OK, "%s", e.text);
}

static void set_up(void)
{
    snprintf(path, sizeof(path), "/tmp/millrace-keys-XXXXXX");
    int fd = mkstemp(path);
    ck_assert(fd >= 0);
    close(fd);
    settings_init(&set);
    auth_init(&auth, NULL);
}

static void tear_down(void)
{
    auth_release(&auth);
    settings_release(&set);
    unlink(path);
}

static enum status load(const char *keys)
{
    write_keys(keys);
    option("server.api_key_file", path);
    return auth_load(&auth, &set, &e);
}

static void must_load(const char *keys)
{
    ck_assert_msg(load(keys) == OK, "%s", e.text);
}

static struct str value(const char *text)
{
    return text ? str_of(text) : (struct str){0};
}

static bool check(const char *authorization, const char *x_api_key, struct auth_grant *g)
{
    return auth_check(&auth, value(authorization), value(x_api_key), g);
}

static bool allows(const char *authorization, const char *x_api_key)
{
    struct auth_grant g;
    bool ok = check(authorization, x_api_key, &g);
    ck_assert(ok == (g.policy != NULL));
    auth_drop(&g);
    return ok;
}

static struct auth_grant grant(const char *key)
{
    struct auth_grant g;
    ck_assert_msg(check(NULL, key, &g), "%s", key);
    return g;
}

static uint32_t slot_of(const char *key)
{
    struct auth_grant g = grant(key);
    uint32_t slot = g.tenant->slot;
    auth_drop(&g);
    return slot;
}

static void expect_name(const char *key, const char *name)
{
    struct auth_grant g = grant(key);
    ck_assert_str_eq(g.tenant->name, name);
    auth_drop(&g);
}

/* ---- keys ---- */

START_TEST(keys_come_from_option_and_file)
{
    option("api_key", "sk-zero");
    must_load("# staff\n  sk-one  \n\nsk-two\r\n");
    ck_assert_uint_eq(auth.now->n_keys, 3);
    ck_assert(auth_needs_key(&auth));
    ck_assert(allows("Bearer sk-one", NULL));
    ck_assert(allows("bearer  sk-two", NULL));
    ck_assert(allows(NULL, "sk-zero"));
    ck_assert(allows("Bearer wrong", "sk-zero"));
    ck_assert(!allows(NULL, NULL));
    ck_assert(!allows("Bearer sk-on", NULL));
    ck_assert(!allows("Bearer sk-onee", NULL));
    ck_assert(!allows("Bearer ", NULL));
    ck_assert(!allows("Basic sk-one", NULL));
    ck_assert(!allows(NULL, ""));
}
END_TEST

/* Of Windows' editors: a byte order mark first, CRLF line ends. */
START_TEST(a_byte_order_mark_and_crlf_are_no_part_of_a_key)
{
    char longest[POLICY_MAX_LINE_BYTES + 10] = "\xEF\xBB\xBF";
    must_load("\xEF\xBB\xBFsk-one name=a\r\nsk-two name=b weight=2\r\n\r\n# end\r\n");
    ck_assert_uint_eq(auth.now->n_keys, 2);
    ck_assert(allows("Bearer sk-one", NULL) && allows(NULL, "sk-two"));
    expect_name("sk-two", "b");
    must_load("\xEF\xBB\xBF# staff\r\nsk-one\r\n");
    ck_assert_uint_eq(auth.now->n_keys, 1);
    ck_assert(allows(NULL, "sk-one"));
    ck_assert_int_eq(load("\xEF\xBB\xBF\r\n"), ERR_INVALID);
    ck_assert(strstr(e.text, "holds no key") != NULL);
    memset(longest + 3, ' ', sizeof(longest) - 4);
    longest[POLICY_MAX_LINE_BYTES + 3] = 'k';
    longest[POLICY_MAX_LINE_BYTES + 4] = 0;
    ck_assert_int_eq(load(longest), ERR_INVALID);
    ck_assert(strstr(e.text, "longer than 1024 bytes") != NULL);
}
END_TEST

START_TEST(a_key_file_that_would_leave_the_server_open_is_refused)
{
    char longest[POLICY_MAX_LINE_BYTES + 10];
    ck_assert_int_eq(load("# nothing\n\n"), ERR_INVALID);
    memset(longest, 'k', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = 0;
    ck_assert_int_eq(load(longest), ERR_INVALID);
    ck_assert(strstr(e.text, "line 1") && strstr(e.text, "1024"));
    longest[POLICY_MAX_KEY_BYTES + 1] = 0;
    ck_assert_int_eq(load(longest), ERR_INVALID);
    ck_assert(strstr(e.text, "line 1") && strstr(e.text, "512"));
    longest[POLICY_MAX_KEY_BYTES] = 0;
    must_load(longest);
    unlink(path);
    ck_assert_int_eq(auth_load(&auth, &set, &e), ERR_NOT_FOUND);
}
END_TEST

static const struct {
    struct str text;
    const char *why; /* NULL: taken */
} key_texts[] = {
    {STR_LIT("\xEF\xBB\xBFsk-one\r\n"), NULL},
    {STR_LIT("# caf\xC3\xA9\n  sk-one \t\r\n\r\n"), NULL},
    {STR_LIT("sk-one"), NULL},
    {STR_LIT("sk-one\n\xFF\xFEs\0k\0\n"), "line 2: byte 0xff is not valid utf-8"},
    {STR_LIT("\xFF\xFEs\0k\0\n\0"), "line 1: the file is utf-16"},
    {STR_LIT("sk-one\ns\0k\n"), "line 2: holds a nul byte"},
    {STR_LIT("sk-one\n\nsk\x01two\n"), "line 3: holds the control character U+0001"},
    {STR_LIT("sk-one\rsk-two\n"), "line 1: holds the control character U+000D"},
    {STR_LIT("sk-one\nsk-two\x7F"), "line 2: holds the control character U+007F"},
    {STR_LIT("sk-\xC3\xA9\n"), "line 1: the key holds a character that is not ascii"},
    {STR_LIT("sk-one\n\xEF\xBB\xBFsk-two\n"), "line 2: the key holds a character that is not"},
    {STR_LIT("sk-one\n\xE2\x80\x8Bsk-two\n"), "line 2: the key holds a character that is not"},
};

START_TEST(a_key_file_is_text_and_a_key_what_clients_can_send)
{
    FILE *f = fopen(path, "w");
    struct str text = key_texts[_i].text;
    ck_assert(f && fwrite(text.ptr, 1, text.len, f) == text.len);
    fclose(f);
    option("server.api_key_file", path);
    enum status st = auth_load(&auth, &set, &e);
    if (key_texts[_i].why) {
        ck_assert_int_eq(st, ERR_INVALID);
        ck_assert_msg(strstr(e.text, key_texts[_i].why), "%s", e.text);
        ck_assert(strstr(e.text, path) && !strstr(e.text, "sk-"));
        return;
    }
    struct auth_grant g;
    ck_assert_int_eq(st, OK);
    ck_assert(check("Bearer sk-one", NULL, &g));
    auth_drop(&g);
}
END_TEST

static const struct {
    const char *given, *sent, *why;
} own_keys[] = {
    {" sk-1 ", "Bearer sk-1", NULL},
    {"sk-1\n", "Bearer sk-1", NULL},
    {"\t\r\nsk-1\r\n", "Bearer sk-1", NULL},
    {"\xEF\xBB\xBFsk-1", "Bearer sk-1", NULL},
    {"sk 1", "Bearer sk 1", NULL},
    {" ", NULL, "option api_key: holds blanks only"},
    {"\n", NULL, "option api_key: holds blanks only"},
    {"sk-\xC3\xA9", NULL,
     "api_key (environment: MILLRACE_API_KEY): the key holds a character that"},
    {"sk-\xC2\xA0", NULL, "the key holds a character that is not ascii"},
    {"s\nk", NULL, "option api_key: '(hidden)' is not free of control characters"},
    {"s\x7Fk", NULL, "is not free of control characters"},
    {"s\xFFk", NULL, "option api_key: '(hidden)' is not valid utf-8"},
};

START_TEST(blanks_around_an_own_key_are_dropped_and_what_cannot_be_sent_is_refused)
{
    enum status st = settings_set(&set, "api_key", own_keys[_i].given, &e);
    if (!st)
        st = auth_load(&auth, &set, &e);
    if (own_keys[_i].why) {
        ck_assert_int_eq(st, ERR_INVALID);
        ck_assert_msg(strstr(e.text, own_keys[_i].why), "%s", e.text);
        return;
    }
    struct auth_grant g;
    ck_assert_int_eq(st, OK);
    ck_assert(check(own_keys[_i].sent, NULL, &g));
    auth_drop(&g);
}
END_TEST

/* A reload on the main thread waits for nobody. */
START_TEST(a_pipe_that_nobody_writes_to_holds_no_key)
{
    unlink(path);
    ck_assert(mkfifo(path, 0600) == 0);
    option("server.api_key_file", path);
    ck_assert_int_eq(auth_load(&auth, &set, &e), ERR_INVALID);
    ck_assert_msg(strstr(e.text, "holds no key"), "%s", e.text);
}
END_TEST

START_TEST(without_keys_everyone_is_the_tenant_default)
{
    ck_assert_int_eq(auth_load(&auth, &set, &e), OK);
    ck_assert(!auth_needs_key(&auth));
    struct auth_grant g;
    ck_assert(check("Bearer anything", NULL, &g));
    ck_assert_str_eq(g.tenant->name, "default");
    ck_assert_uint_eq(g.tenant->slot, 0);
    auth_drop(&g);
}
END_TEST

START_TEST(more_keys_than_allowed_are_refused_at_the_very_bound)
{
    struct buf text = {0};
    for (int i = 0; i < POLICY_MAX_KEYS; i++)
        buf_printf(&text, "sk-%d weight=%d\n", i, 1 + i);
    must_load(text.ptr);
    buf_add_c(&text, "one-more\n");
    ck_assert_int_eq(load(text.ptr), ERR_INVALID);
    ck_assert(strstr(e.text, "line 257") && strstr(e.text, "256"));
    buf_release(&text);
}
END_TEST

/* ---- words ---- */

START_TEST(every_word_of_a_line_reaches_the_tenant)
{
    must_load(
        "sk-a name=alpha weight=7 priority=-3 max_running=4 max_queued=5 max_queued_tokens=600\n"
        "sk-b name=beta tokens_per_minute=1000 max_input=10 max_output=20 max_context=30\n");
    struct tenant_config c;
    struct auth_grant a = grant("sk-a"), b = grant("sk-b");
    policy_config(a.policy, (uint32_t)(a.tenant - a.policy->tenant), &c);
    ck_assert_str_eq(c.name, "alpha");
    ck_assert_uint_eq(c.weight, 7);
    ck_assert_int_eq(c.priority, -3);
    ck_assert_uint_eq(c.max_running, 4);
    ck_assert_uint_eq(c.max_queued, 5);
    ck_assert_uint_eq(c.max_queued_tokens, 600);
    ck_assert_uint_eq(c.tokens_per_minute, 0);
    policy_config(b.policy, (uint32_t)(b.tenant - b.policy->tenant), &c);
    ck_assert_uint_eq(c.weight, 1);
    ck_assert_int_eq(c.priority, 0);
    ck_assert_uint_eq(c.tokens_per_minute, 1000);
    ck_assert_uint_eq(b.tenant->limits.max_input, 10);
    ck_assert_uint_eq(b.tenant->limits.max_output, 20);
    ck_assert_uint_eq(b.tenant->limits.max_context, 30);
    auth_drop(&a);
    auth_drop(&b);
}
END_TEST

static const struct {
    const char *keys, *text;
} bad_files[] = {
    {"ok\nsk-secret wieght=2\n", "line 2: unknown word \"wieght\": did you mean \"weight\""},
    {"sk-secret nam=x\n", "line 1: unknown word \"nam\": did you mean \"name\""},
    {"sk-secret max_inputs=1\n", "did you mean \"max_input\""},
    {"sk-secret weight\n", "a word of 6 bytes is not of the form word=value"},
    {"sk-secret weight=0\n", "weight must be a whole number from 1 to 1000, not \"0\""},
    {"sk-secret weight=1001\n", "not \"1001\""},
    {"sk-secret weight=1e3\n", "not \"1e3\""},
    {"sk-secret weight=\n", "not \"\""},
    {"sk-secret weight=-\n", "not \"-\""},
    {"sk-secret priority=-32\n", "from -31 to 31"},
    {"sk-secret max_context=1\n", "from 2 to"},
    {"sk-secret tokens_per_minute=99999999999999999999\n", "tokens_per_minute"},
    {"sk-secret admin=yes\n", "admin must be true or false, not \"yes\""},
    {"sk-secret weight=2 weight=3\n", "weight is given twice"},
    {"sk-secret name=a name=b\n", "name is given twice"},
    {"sk-secret name=\n", "name has 0 bytes"},
    {"sk-secret name=a:b\n", "other bytes"},
    {"sk-secret name=a weight=2\nsk-two name=a weight=3\n",
     "line 2: the words of this name are on line 1"},
    {"sk-secret weight=2\nsk-secret weight=3\n", "line 2: the words of this key are on line 1"},
    {"sk-secret name=a\nsk-secret name=b\n", "line 2: the key is on line 1 with another name"},
};

START_TEST(a_bad_line_is_told_by_number_and_word_and_never_by_its_key)
{
    ck_assert_int_eq(load(bad_files[_i].keys), ERR_INVALID);
    ck_assert_msg(strstr(e.text, bad_files[_i].text) != NULL, "%s", e.text);
    ck_assert(!strstr(e.text, "sk-secret") && strstr(e.text, path));
}
END_TEST

START_TEST(lines_of_one_name_share_a_tenant)
{
    must_load("sk-old name=app weight=3\nsk-new name=app\nsk-x name=other\n");
    ck_assert_uint_eq(slot_of("sk-old"), slot_of("sk-new"));
    ck_assert_uint_ne(slot_of("sk-old"), slot_of("sk-x"));
}
END_TEST

START_TEST(a_key_without_a_name_is_shown_by_its_line_only)
{
    must_load("\nsk-plain weight=2\n");
    expect_name("sk-plain", "line:2");
}
END_TEST

START_TEST(the_key_of_the_environment_is_the_tenant_default_unless_the_file_knows_it)
{
    option("api_key", "sk-env");
    must_load("sk-a name=a\nsk-d name=default weight=5\n");
    expect_name("sk-env", "default");
    expect_name("sk-d", "default");
    ck_assert_uint_eq(slot_of("sk-env"), 0);
    must_load("sk-env name=mine\n");
    expect_name("sk-env", "mine");
}
END_TEST

START_TEST(a_lone_key_bounds_no_priority_and_several_do)
{
    struct tenant_config c;
    must_load("sk-a name=a\n");
    policy_config(auth.now, 1, &c);
    ck_assert_int_eq(c.priority, -TENANT_PRIORITY_MAX);
    policy_config(auth.now, 0, &c);
    ck_assert_uint_eq(c.weight, 0); /* nobody is the tenant default */
    must_load("sk-a name=a\nsk-b name=b\n");
    policy_config(auth.now, 1, &c);
    ck_assert_int_eq(c.priority, 0);
}
END_TEST

/* ---- who may see what is others' ---- */

static bool is_admin(const char *key)
{
    struct auth_grant g = grant(key);
    bool admin = g.admin;
    auth_drop(&g);
    return admin;
}

START_TEST(without_an_admin_key_all_see_everything)
{
    struct auth_grant g;
    ck_assert_int_eq(auth_load(&auth, &set, &e), OK);
    ck_assert(check(NULL, NULL, &g) && g.admin);
    auth_drop(&g);
    must_load("sk-a name=a\nsk-b name=b admin=false\n");
    ck_assert(is_admin("sk-a") && is_admin("sk-b"));
    must_load("sk-a\n");
    ck_assert(is_admin("sk-a"));
}
END_TEST

START_TEST(once_a_key_is_admin_others_are_not)
{
    option("api_key", "sk-env");
    must_load("sk-a name=a\nsk-ops name=ops admin=true\nsk-b\nsk-ops2 name=ops\n"
              "sk-d name=default\n");
    ck_assert(is_admin("sk-ops") && is_admin("sk-ops2"));
    ck_assert(!is_admin("sk-a") && !is_admin("sk-b"));
    ck_assert(is_admin("sk-env")); /* whoever can set it runs the server */
    ck_assert(!is_admin("sk-d")); /* of the same name, but another key */
    must_load("sk-env name=a\nsk-ops name=ops admin=true\n");
    ck_assert(!is_admin("sk-env")); /* the file knows more of it */
    must_load("sk-a name=a\n");
    ck_assert(is_admin("sk-a")); /* no admin any more */
}
END_TEST

/* ---- limits ---- */

START_TEST(the_least_limit_is_in_force_and_says_where_it_comes_from)
{
    struct limits_in_force l;
    option("limits.max_input", "500");
    option("limits.route", "chat max_input=400 max_output=50");
    option("limits.route", "completions max_context=300");
    must_load("sk-a name=a max_input=100 max_output=60\nsk-b name=b\n");
    struct auth_grant a = grant("sk-a"), b = grant("sk-b");
    policy_limits(a.policy, a.tenant, ROUTE_CHAT, 1000, &l);
    ck_assert_uint_eq(l.is.max_input, 100);
    ck_assert_str_eq(l.input_from, "max_input of the key");
    ck_assert_uint_eq(l.is.max_output, 50);
    ck_assert_str_eq(l.output_from, "max_output of the route");
    ck_assert_uint_eq(l.is.max_context, 1000);
    policy_limits(b.policy, b.tenant, ROUTE_CHAT, 1000, &l);
    ck_assert_uint_eq(l.is.max_input, 400);
    policy_limits(b.policy, b.tenant, ROUTE_COMPLETIONS, 1000, &l);
    ck_assert_uint_eq(l.is.max_input, 500);
    ck_assert_str_eq(l.input_from, "limits.max_input");
    ck_assert_uint_eq(l.is.max_context, 300);
    ck_assert_str_eq(l.context_from, "max_context of the route");
    ck_assert_uint_eq(l.is.max_output, UINT32_MAX);
    auth_drop(&a);
    auth_drop(&b);
}
END_TEST

static const struct {
    const char *route, *text;
} bad_routes[] = {
    {"chats max_input=1", "\"chats\" is not a route: the routes are chat and completions"},
    {" ", "\"\" is not a route"},
    {"chat max_inptu=1", "did you mean \"max_input\""},
    {"chat weight=1", "unknown word \"weight\""},
    {"chat admin=true", "unknown word \"admin\""},
    {"chat name=1", "unknown word \"name\""},
    {"chat max_input=0", "from 1 to"},
};

START_TEST(a_bad_route_is_told_by_its_word)
{
    option("limits.route", bad_routes[_i].route);
    ck_assert_int_eq(auth_load(&auth, &set, &e), ERR_INVALID);
    ck_assert_msg(strstr(e.text, bad_routes[_i].text) != NULL, "%s", e.text);
    ck_assert(strstr(e.text, "limits.route") != NULL);
}
END_TEST

START_TEST(a_route_is_given_once)
{
    option("limits.route", "chat max_input=1");
    option("limits.route", "chat max_output=1");
    ck_assert_int_eq(auth_load(&auth, &set, &e), ERR_INVALID);
    ck_assert(strstr(e.text, "chat is given twice") != NULL);
}
END_TEST

/* ---- reload ---- */

START_TEST(a_bad_reload_leaves_the_old_policy)
{
    must_load("sk-a name=a\n");
    const struct policy *before = auth.now;
    ck_assert_int_eq(load("sk-b nmae=b\n"), ERR_INVALID);
    ck_assert_ptr_eq(auth.now, before);
    ck_assert(allows(NULL, "sk-a") && !allows(NULL, "sk-b"));
}
END_TEST

START_TEST(what_was_let_in_keeps_the_policy_it_came_with)
{
    must_load("sk-a name=a max_input=5\n");
    struct auth_grant g = grant("sk-a");
    must_load("sk-b name=b\n");
    ck_assert(!allows(NULL, "sk-a"));
    ck_assert_str_eq(g.tenant->name, "a");
    ck_assert_uint_eq(g.tenant->limits.max_input, 5);
    auth_drop(&g);
}
END_TEST

START_TEST(a_tenant_keeps_its_slot_over_reloads)
{
    must_load("sk-a name=a\nsk-b name=b\nsk-plain\n");
    uint32_t b = slot_of("sk-b"), plain = slot_of("sk-plain");
    must_load("sk-c name=c\nsk-b2 name=b weight=3\n\nsk-plain weight=9\n");
    ck_assert_uint_eq(slot_of("sk-b2"), b);
    ck_assert_uint_eq(slot_of("sk-plain"), plain);
}
END_TEST

START_TEST(a_slot_in_use_goes_to_nobody_else)
{
    must_load("sk-a name=a\n");
    struct auth_grant g = grant("sk-a");
    uint32_t slot = g.tenant->slot, generation = auth.slot[slot].generation;
    must_load("sk-b name=b\n");
    ck_assert_uint_ne(slot_of("sk-b"), slot);
    ck_assert_uint_eq(auth.slot[slot].generation, generation);
    auth_drop(&g);
    must_load("sk-c name=c\n");
    ck_assert_uint_eq(slot_of("sk-c"), slot);
    ck_assert_uint_ne(auth.slot[slot].generation, generation);
}
END_TEST

START_TEST(slots_that_all_run_refuse_a_reload_and_keep_the_old_keys)
{
    enum { HALF = 250 };
    struct auth_grant held[2 * HALF];
    struct buf text = {0};
    for (int round = 0; round < 2; round++) {
        buf_clear(&text);
        for (int i = 0; i < HALF; i++)
            buf_printf(&text, "sk-%d-%d name=n%d-%d\n", round, i, round, i);
        must_load(text.ptr);
        for (int i = 0; i < HALF; i++) {
            char key[32];
            snprintf(key, sizeof(key), "sk-%d-%d", round, i);
            held[round * HALF + i] = grant(key);
        }
    }
    buf_clear(&text);
    for (int i = 0; i < 20; i++)
        buf_printf(&text, "sk-z%d name=z%d\n", i, i);
    ck_assert_int_eq(load(text.ptr), ERR_BUSY);
    ck_assert(allows(NULL, "sk-1-7"));
    for (int i = 0; i < 2 * HALF; i++)
        auth_drop(&held[i]);
    must_load(text.ptr);
    buf_release(&text);
}
END_TEST

START_TEST(weights_and_caps_reach_the_table_of_tenants)
{
    struct tenants *t = tenants_new(NS_PER_S, 8, 2, 0);
    struct tenant_view v;
    auth.tenants = t;
    must_load("sk-a name=a weight=5\nsk-b name=b weight=6\n");
    ck_assert(tenants_poll(t));
    tenant_look(t, slot_of("sk-a"), &v);
    ck_assert_uint_eq(v.weight, 5);
    must_load("sk-b name=b weight=9\n");
    ck_assert(tenants_poll(t));
    tenant_look(t, slot_of("sk-b"), &v);
    ck_assert_uint_eq(v.weight, 9);
    tenants_free(t);
}
END_TEST

struct checker {
    struct thread thread;
    atomic_bool stop;
    uint64_t n;
};

static void check_on(void *arg)
{
    struct checker *c = arg;
    while (!atomic_load(&c->stop)) {
        struct auth_grant g;
        if (!check(NULL, "sk-a", &g) || strcmp(g.tenant->name, "a") != 0)
            abort();
        auth_drop(&g);
        c->n++;
    }
}

START_TEST(reloads_never_turn_a_key_away_that_stands_in_both_files)
{
    struct checker c = {0};
    must_load("sk-a name=a\n");
    ck_assert_int_eq(thread_start(&c.thread, "checker", check_on, &c, &e), OK);
    for (int i = 0; i < 200; i++)
        must_load(i % 2 ? "sk-a name=a\n" : "sk-b name=b\nsk-a name=a weight=2\n");
    atomic_store(&c.stop, true);
    thread_join(&c.thread);
    for (uint32_t i = 0; i < TENANT_MAX; i++)
        ck_assert_uint_eq(auth.slot[i].uses, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("server/policy");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, keys_come_from_option_and_file);
    tcase_add_test(t, a_byte_order_mark_and_crlf_are_no_part_of_a_key);
    tcase_add_test(t, a_key_file_that_would_leave_the_server_open_is_refused);
    tcase_add_loop_test(t, a_key_file_is_text_and_a_key_what_clients_can_send, 0,
                        sizeof(key_texts) / sizeof(key_texts[0]));
    tcase_add_loop_test(t, blanks_around_an_own_key_are_dropped_and_what_cannot_be_sent_is_refused,
                        0, sizeof(own_keys) / sizeof(own_keys[0]));
    tcase_add_test(t, a_pipe_that_nobody_writes_to_holds_no_key);
    tcase_add_test(t, without_keys_everyone_is_the_tenant_default);
    tcase_add_test(t, more_keys_than_allowed_are_refused_at_the_very_bound);
    tcase_add_test(t, every_word_of_a_line_reaches_the_tenant);
    tcase_add_loop_test(t, a_bad_line_is_told_by_number_and_word_and_never_by_its_key, 0,
                        sizeof(bad_files) / sizeof(bad_files[0]));
    tcase_add_test(t, lines_of_one_name_share_a_tenant);
    tcase_add_test(t, a_key_without_a_name_is_shown_by_its_line_only);
    tcase_add_test(t, the_key_of_the_environment_is_the_tenant_default_unless_the_file_knows_it);
    tcase_add_test(t, a_lone_key_bounds_no_priority_and_several_do);
    tcase_add_test(t, without_an_admin_key_all_see_everything);
    tcase_add_test(t, once_a_key_is_admin_others_are_not);
    tcase_add_test(t, the_least_limit_is_in_force_and_says_where_it_comes_from);
    tcase_add_loop_test(t, a_bad_route_is_told_by_its_word, 0,
                        sizeof(bad_routes) / sizeof(bad_routes[0]));
    tcase_add_test(t, a_route_is_given_once);
    tcase_add_test(t, a_bad_reload_leaves_the_old_policy);
    tcase_add_test(t, what_was_let_in_keeps_the_policy_it_came_with);
    tcase_add_test(t, a_tenant_keeps_its_slot_over_reloads);
    tcase_add_test(t, a_slot_in_use_goes_to_nobody_else);
    tcase_add_test(t, slots_that_all_run_refuse_a_reload_and_keep_the_old_keys);
    tcase_add_test(t, weights_and_caps_reach_the_table_of_tenants);
    tcase_add_test(t, reloads_never_turn_a_key_away_that_stands_in_both_files);
    suite_add_tcase(s, t);
    return run_suite(s);
}
