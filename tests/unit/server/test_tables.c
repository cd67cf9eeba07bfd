/* server: tables of errors and routes, timers, stream framing, KV sizing. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/json.h"
#include "config/settings.h"
#include "kvpool/tier.h"
#include "server/errors.h"
#include "server/http/listen.h"
#include "server/api/messages.h"
#include "server/http/routes.h"
#include "server/http/stream.h"
#include "server/http/timers.h"
#include "tests/unit/run_suite.h"

/* ---- errors ---- */

START_TEST(every_status_has_its_own_row)
{
#define X(name, value, text) ck_assert_int_eq(problem_find(name)->id, name);
    STATUS_TABLE(X)
#undef X
    ck_assert_int_eq(problem_find(12345)->id, ERR_INTERNAL);
}
END_TEST

START_TEST(every_row_gives_openais_error_object)
{
    const struct json_limits limits = {.depth = 8, .n_nodes = 100};
    for (size_t i = 0; problem_at(i); i++) {
        const struct problem *p = problem_at(i);
        struct err e;
        struct buf out = {0};
        struct json_doc *doc;
        ck_assert(p->http >= 400 && p->http < 600);
        ck_assert((p->retry_after_s > 0) == (p->http == 429 || p->http == 503));
        err_set_field(&e, ERR_INVALID, "a.b[0]", NULL, "quote \" and \n newline");
        problem_add_json(&out, p, &e, ",\"extra\":1");
        ck_assert_int_eq(json_parse(buf_str(&out), limits, &doc, NULL), OK);
        const struct json *error = json_get(json_root(doc), "error");
        ck_assert(str_eq_c(json_string(json_get(error, "message")), "quote \" and \n newline"));
        ck_assert(str_eq_c(json_string(json_get(error, "type")), p->type));
        ck_assert(str_eq_c(json_string(json_get(error, "param")), "a.b[0]"));
        ck_assert(json_is(json_get(error, "code"), *p->code ? JSON_STRING : JSON_NULL));
        ck_assert(json_is(json_get(error, "extra"), JSON_NUMBER));
        json_free(doc);
        buf_release(&out);
    }
}
END_TEST

/* ---- routes ---- */

START_TEST(every_route_is_found_in_all_spellings_of_its_path)
{
    static const char *const forms[] = {
        "%s", "/v1%s", "/%s", "%s/", "/v1/%s//", "http://localhost:8000/v1%s", "HTTPS://a%s"};
    for (size_t i = 0; route_at(i); i++) {
        const struct route *r = route_at(i);
        for (size_t k = 0; k < sizeof(forms) / sizeof(forms[0]); k++) {
            char path[128], wanted[128], arg[64], allow[64];
            snprintf(wanted, sizeof(wanted), "%s", r->path);
            char *id = strstr(wanted, "{id}");
            if (id)
                snprintf(id, sizeof(wanted) - (size_t)(id - wanted), "or/g");
            snprintf(path, sizeof(path), forms[k], wanted);
            ck_assert_msg(route_find(r->method, path, arg, sizeof(arg), allow) == r, "%s", path);
            ck_assert(!id || strcmp(arg, "or/g") == 0);
            ck_assert(!route_find(METHOD_OTHER, path, arg, sizeof(arg), allow));
            ck_assert_msg(
                strstr(allow, r->method == METHOD_GET ? "GET, HEAD" : method_label(r->method)),
                "%s", allow);
            if (r->method == METHOD_GET)
                ck_assert(route_find(METHOD_HEAD, path, arg, sizeof(arg), allow) == r);
        }
    }
}
END_TEST

START_TEST(unknown_paths_allow_nothing)
{
    static const char *const paths[] = {"/",          "",         "/nothing", "/v1", "/v1/",
                                        "/v2/models", "/healthz", "/models/", "*"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        char arg[64], allow[64];
        bool list = strcmp(paths[i], "/models/") == 0;
        ck_assert((route_find(METHOD_GET, paths[i], arg, sizeof(arg), allow) != NULL) == list);
        ck_assert_str_eq(allow, "");
    }
    char longest[2048], arg[64], allow[64];
    memset(longest, 'a', sizeof(longest) - 1);
    longest[0] = '/';
    longest[sizeof(longest) - 1] = 0;
    ck_assert(!route_find(METHOD_GET, longest, arg, sizeof(arg), allow));
}
END_TEST

START_TEST(all_but_health_and_readiness_need_a_key_and_debug_and_metrics_one_of_an_admin)
{
    for (size_t i = 0; route_at(i); i++) {
        const char *path = route_at(i)->path;
        enum route_needs needs = NEEDS_KEY;
        if (strcmp(path, "/health") == 0 || strcmp(path, "/ready") == 0)
            needs = NEEDS_NOTHING;
        else if (strncmp(path, "/debug/", 7) == 0 || strcmp(path, "/metrics") == 0)
            needs = NEEDS_ADMIN;
        ck_assert_msg(route_at(i)->needs == needs, "%s", path);
    }
}
END_TEST

/* ---- timers ---- */

START_TEST(timers_expire_in_the_order_they_were_started)
{
    struct timer_list l;
    struct timer t[4] = {{0}};
    timer_list_init(&l, 100);
    ck_assert_uint_eq(timer_next_ns(&l), UINT64_MAX);
    for (uint64_t i = 0; i < 4; i++)
        timer_start(&l, &t[i], i * 10);
    timer_start(&l, &t[0], 40);
    timer_stop(&t[2]);
    timer_stop(&t[2]);
    ck_assert_uint_eq(timer_next_ns(&l), 110);
    ck_assert_ptr_null(timer_take_expired(&l, 109));
    ck_assert_ptr_eq(timer_take_expired(&l, 130), &t[1]);
    ck_assert(!timer_runs(&t[1]));
    ck_assert_ptr_eq(timer_take_expired(&l, 130), &t[3]);
    ck_assert_ptr_null(timer_take_expired(&l, 139));
    ck_assert_ptr_eq(timer_take_expired(&l, 140), &t[0]);
    ck_assert_ptr_null(timer_take_expired(&l, UINT64_MAX));
}
END_TEST

/* ---- streams ---- */

START_TEST(a_frame_is_one_http_chunk)
{
    for (size_t n = 1; n < 70000; n = n * 3 + 1) {
        struct buf out = {0};
        char head[16];
        for (size_t i = 0; i < STREAM_HEAD_BYTES + n; i++)
            buf_add_char(&out, (char)('a' + i % 26));
        char first = out.ptr[STREAM_HEAD_BYTES];
        struct str bare = stream_frame(&out, false);
        ck_assert(bare.len == n && bare.ptr[0] == first);
        struct str frame = stream_frame(&out, true);
        int n_head = snprintf(head, sizeof(head), "%zx\r\n", n);
        ck_assert_uint_eq(frame.len, (size_t)n_head + n + 2);
        ck_assert(memcmp(frame.ptr, head, (size_t)n_head) == 0 && frame.ptr[n_head] == first);
        ck_assert(memcmp(frame.ptr + frame.len - 2, "\r\n", 2) == 0);
        buf_release(&out);
    }
}
END_TEST

/* ---- sockets ---- */

static int socket_option(int fd, int level, int name)
{
    int value = 0;
    socklen_t n = sizeof(value);
    ck_assert_int_eq(getsockopt(fd, level, name, &value, &n), 0);
    return value;
}

/* G050: small events leave at once; a reader that stalls holds little kernel memory. */
START_TEST(accepted_sockets_have_the_options_of_the_listener)
{
    struct settings set;
    struct err e;
    int fd[3];
    uint16_t port;
    settings_init(&set);
    set.port = 0;
    ck_assert_msg(listen_open(&set, fd, 3, &port, &e) == OK, "%s", e.text);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(client, (struct sockaddr *)&a, sizeof(a)), 0);
    int accepted = -1;
    for (int i = 0; i < 3; i++)
        if (accepted < 0)
            accepted = accept(fd[i], NULL, NULL);
    ck_assert_int_ge(accepted, 0);
    ck_assert_int_eq(socket_option(accepted, IPPROTO_TCP, TCP_NODELAY), 1);
    ck_assert_int_eq(socket_option(accepted, SOL_SOCKET, SO_KEEPALIVE), 1);
    ck_assert_int_eq(socket_option(accepted, SOL_SOCKET, SO_SNDBUF), (int)set.server_sndbuf);
    struct buf who = {0};
    listen_holder(port, &who);
    ck_assert_msg(strstr(who.ptr, "process ") != NULL, "%s", who.ptr);
    buf_release(&who);
    set.port = port;
    ck_assert_int_eq(listen_open(&set, fd, 1, &port, &e), ERR_IO);
    ck_assert(strstr(e.text, "--port") != NULL);
    settings_release(&set);
}
END_TEST

/* ---- messages ---- */

struct conversation {
    const char *in, *out, *param; /* out NULL: refused, naming param */
};
static const struct conversation conversations[] = {
    {"[{\"role\":\"user\",\"content\":\"hi\"}]", "[{\"role\":\"user\",\"content\":\"hi\"}]", NULL},
    {"[{\"role\":\"developer\",\"content\":\"x\",\"name\":\"bob\"}]",
     "[{\"role\":\"system\",\"content\":\"x\",\"name\":\"bob\"}]", NULL},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Say \"},"
     "{\"type\":\"text\",\"text\":\"hi\"}]}]",
     "[{\"role\":\"user\",\"content\":\"Say hi\"}]", NULL},
    {"[{\"role\":\"user\",\"content\":[]}]", "[{\"role\":\"user\",\"content\":\"\"}]", NULL},
    {"[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]",
     "[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]", NULL},
    {"[{\"role\":\"assistant\",\"content\":null}]", "[{\"role\":\"assistant\",\"content\":\"\"}]",
     NULL},
    {"[{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"tool_calls\":[{\"id\":\"1\","
     "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}}]}]",
     "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":"
     "\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}}]}]",
     NULL},
    {"[{\"role\":\"tool\",\"content\":\"4\",\"tool_call_id\":\"1\"}]",
     "[{\"role\":\"tool\",\"content\":\"4\",\"tool_call_id\":\"1\"}]", NULL},
    {"[]", NULL, "messages"},
    {"{}", NULL, "messages"},
    {"[1]", NULL, "messages[0]"},
    {"[{\"content\":\"x\"}]", NULL, "messages[0].role"},
    {"[{\"role\":1,\"content\":\"x\"}]", NULL, "messages[0].role"},
    {"[{\"role\":\"king\",\"content\":\"x\"}]", NULL, "messages[0].role"},
    {"[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"user\"}]", NULL, "messages[1].content"},
    {"[{\"role\":\"user\",\"content\":null}]", NULL, "messages[0].content"},
    {"[{\"role\":\"user\",\"content\":5}]", NULL, "messages[0].content"},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]", NULL,
     "messages[0].content[0].type"},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", NULL,
     "messages[0].content[0].text"},
    {"[{\"role\":\"user\",\"content\":[5]}]", NULL, "messages[0].content[0]"},
    {"[{\"role\":\"user\",\"content\":\"x\",\"name\":\"a\\u0000\"}]", NULL, "messages[0].name"},
    {"[{\"role\":\"user\",\"content\":\"x\",\"name\":5}]", NULL, "messages[0].name"},
    {"[{\"role\":\"assistant\",\"tool_calls\":5}]", NULL, "messages[0].tool_calls"},
    {"[{\"role\":\"assistant\",\"tool_calls\":[5]}]", NULL, "messages[0].tool_calls[0]"},
    {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":5}]}]", NULL,
     "messages[0].tool_calls[0].function"},
};

START_TEST(conversations_are_normalised_or_refused_with_their_path)
{
    const struct conversation *c = &conversations[_i];
    const struct json_limits limits = {.depth = 64, .n_nodes = 1000};
    struct json_doc *doc;
    struct buf out = {0};
    struct err e = {0};
    ck_assert_int_eq(json_parse(str_of(c->in), limits, &doc, &e), OK);
    enum status status = messages_normalise(json_root(doc), "null", &out, &e);
    if (c->out) {
        ck_assert_msg(status == OK, "%s: %s", c->in, e.text);
        ck_assert_str_eq(out.ptr, c->out);
    } else {
        ck_assert_msg(status == ERR_INVALID, "%s", c->in);
        ck_assert_str_eq(e.param, c->param);
        ck_assert(strstr(e.text, c->param) != NULL);
    }
    buf_release(&out);
    json_free(doc);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("server/tables");
    TCase *t = tcase_create("tables");
    tcase_add_test(t, every_status_has_its_own_row);
    tcase_add_test(t, every_row_gives_openais_error_object);
    tcase_add_test(t, every_route_is_found_in_all_spellings_of_its_path);
    tcase_add_test(t, unknown_paths_allow_nothing);
    tcase_add_test(t,
                   all_but_health_and_readiness_need_a_key_and_debug_and_metrics_one_of_an_admin);
    tcase_add_test(t, timers_expire_in_the_order_they_were_started);
    tcase_add_test(t, a_frame_is_one_http_chunk);
    tcase_add_test(t, accepted_sockets_have_the_options_of_the_listener);
    tcase_add_loop_test(t, conversations_are_normalised_or_refused_with_their_path, 0,
                        sizeof(conversations) / sizeof(conversations[0]));
    suite_add_tcase(s, t);
    return run_suite(s);
}
