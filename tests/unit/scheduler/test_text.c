/* Text of sampled tokens on its way through detokenizer and stop strings into events.
 *
 * The vocabulary is a small byte-level one made here: every single byte, some longer tokens, a control
 * token and an end token. The fake follows a script, so that any bytes can come in any cut. */
#include "engine/model/gguf.h"
#include "tests/unit/scheduler/rig.h"

#include "base/utf8.h"

enum { N_BYTES = 256, FIRST_LONG = N_BYTES, MAX_SCRIPT = 64 };

static const char *const longer[] = {"stop", "sto", "top", "END", "ab", "aba", "hello", "xy"};
enum { N_LONG = 8, CONTROL = FIRST_LONG + N_LONG, END_TOKEN, N_VOCAB };

static struct buf file;
static struct gguf *gguf;
static struct tokenizer *tok;
static int32_t script_token[MAX_SCRIPT];

/* ---- the smallest GGUF that holds a vocabulary ---- */

static void put_u32(uint32_t x)
{
    buf_add(&file, &x, sizeof(x));
}

static void put_u64(uint64_t x)
{
    buf_add(&file, &x, sizeof(x));
}

static void put_string(const char *s, size_t n)
{
    put_u64(n);
    buf_add(&file, s, n);
}

static void put_key(const char *key, enum gguf_type type)
{
    put_string(key, strlen(key));
    put_u32(type);
}

/* Bytes as byte-level vocabularies write them: printable ones as they are, others from U+0100 on. */
static int byte_as_char(int byte, char out[4])
{
    static int code[256];
    if (!code['a']) {
        int next_code = 256;
        for (int b = 0; b < 256; b++) {
            bool printable = (b > 32 && b < 127) || (b > 160 && b < 173) || b > 173;
            code[b] = printable ? b : next_code++;
        }
    }
    return utf8_encode((uint32_t)code[byte], out);
}

static void put_tokens(void)
{
    put_key("tokenizer.ggml.tokens", GGUF_ARRAY);
    put_u32(GGUF_STRING);
    put_u64(N_VOCAB);
    for (int b = 0; b < N_BYTES; b++) {
        char utf8[4];
        put_string(utf8, (size_t)byte_as_char(b, utf8));
    }
    for (int i = 0; i < N_LONG; i++)
        put_string(longer[i], strlen(longer[i]));
    put_string("<|ctl|>", 7);
    put_string("<|end|>", 7);
    put_key("tokenizer.ggml.token_type", GGUF_ARRAY);
    put_u32(GGUF_I32);
    put_u64(N_VOCAB);
    for (int i = 0; i < N_VOCAB; i++)
        put_u32(i < CONTROL ? TOKEN_NORMAL : TOKEN_CONTROL);
}

static void setup(void)
{
    struct err e;
    buf_add(&file, "GGUF", 4);
    put_u32(3);
    put_u64(0);
    put_u64(6);
    put_key("tokenizer.ggml.model", GGUF_STRING);
    put_string("gpt2", 4);
    put_key("tokenizer.ggml.pre", GGUF_STRING);
    put_string("gpt-2", 5);
    put_tokens();
    put_key("tokenizer.ggml.merges", GGUF_ARRAY);
    put_u32(GGUF_STRING);
    put_u64(1);
    put_string("a b", 3);
    put_key("tokenizer.ggml.eos_token_id", GGUF_U32);
    put_u32(END_TOKEN);
    ck_assert_msg(gguf_open_memory((const uint8_t *)file.ptr, file.len, &gguf, &e) == OK, "%s",
                  e.text);
    ck_assert_msg(tokenizer_new(gguf, STR_LIT(""), &tok, &e) == OK, "%s", e.text);
}

static void teardown(void)
{
    tokenizer_free(tok);
    gguf_close(gguf);
    buf_release(&file);
}

static int32_t scripted(void *arg, const struct sample_job *job)
{
    (void)arg;
    return script_token[(job->n_history - job->n_prompt) % MAX_SCRIPT];
}

/* ---- one request through the scheduler ---- */

struct outcome {
    struct buf text;
    uint32_t n_tokens;
    enum finish_reason reason;
    int32_t stop_index, stop_token;
};

static void take_event(struct outcome *o, const struct event *ev)
{
    if (ev->type == EVENT_TOKEN) {
        struct str text = {event_text(ev), ev->n_text};
        EXPECT(utf8_valid(text));
        buf_add_str(&o->text, text);
        o->n_tokens += ev->token >= 0;
    } else if (ev->type == EVENT_FINISH) {
        o->reason = ev->reason;
        o->stop_index = ev->stop_index;
        o->stop_token = ev->stop_token;
    } else {
        EXPECT(ev->type == EVENT_END && ev->status == OK && ev->n_output == o->n_tokens);
    }
}

static struct outcome run(struct request *r)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    struct outcome o = {0};
    uint32_t n;
    const struct event *ev;
    opt.n_vocab = N_VOCAB;
    opt.tok = tok;
    opt.fake.script = scripted;
    rig_init(&g, &opt);
    rig_submit(&g, r);
    rig_run(&g);
    while ((ev = byte_ring_peek(&r->ring, &n)) != NULL) {
        take_event(&o, ev);
        byte_ring_pop(&r->ring);
    }
    request_unref(r);
    rig_release(&g);
    return o;
}

static struct request *request_of(uint32_t max_tokens)
{
    static const int32_t prompt[] = {1, 2, 3};
    return rig_request(NULL, prompt, 3, max_tokens);
}

static void add_stop(struct request *r, const char *s)
{
    r->stops.s[r->stops.n++] = str_of(s);
    if (strlen(s) > r->stops.longest)
        r->stops.longest = (uint32_t)strlen(s);
}

static void script_bytes(const char *s)
{
    for (uint32_t i = 0; i < MAX_SCRIPT; i++)
        script_token[i] = i < strlen(s) ? (uint8_t)s[i] : ' ';
}

static void expect(struct outcome o, const char *text, uint32_t n_tokens, enum finish_reason reason)
{
    ck_assert_str_eq(o.text.ptr ? o.text.ptr : "", text);
    ck_assert_uint_eq(o.n_tokens, n_tokens);
    ck_assert_int_eq(o.reason, reason);
    buf_release(&o.text);
}

START_TEST(text_comes_whole_and_half_a_code_point_at_the_end_is_replaced)
{
    script_bytes("h\xc3\xa9 \xf0\x9f\x98\x80!");
    expect(run(request_of(9)), "h\xc3\xa9 \xf0\x9f\x98\x80!", 9, FINISH_LENGTH);
    expect(run(request_of(7)), "h\xc3\xa9 \xef\xbf\xbd", 7, FINISH_LENGTH);
}
END_TEST

START_TEST(an_end_token_stops_without_its_text)
{
    script_bytes("abc");
    script_token[3] = END_TOKEN;
    struct outcome o = run(request_of(30));
    ck_assert_int_eq(o.stop_token, END_TOKEN);
    ck_assert_int_eq(o.stop_index, -1);
    expect(o, "abc", 4, FINISH_STOP);
}
END_TEST

START_TEST(ignore_eos_goes_on_past_the_end_token)
{
    script_bytes("abcdef");
    script_token[3] = END_TOKEN;
    struct request *r = request_of(6);
    r->ignore_eos = true;
    expect(run(r), "abcef", 6, FINISH_LENGTH);
    r = request_of(6);
    r->ignore_eos = true;
    r->skip_special = false;
    expect(run(r), "abc<|end|>ef", 6, FINISH_LENGTH);
}
END_TEST

START_TEST(include_stop_shows_the_text_of_a_stop_token)
{
    script_bytes("abcd");
    struct request *r = request_of(30);
    r->include_stop = true;
    r->stop_tokens = mem_alloc(sizeof(int32_t));
    r->stop_tokens[0] = 'c';
    r->n_stop_tokens = 1;
    expect(run(r), "abc", 3, FINISH_STOP);
    r = request_of(30);
    r->stop_tokens = mem_alloc(sizeof(int32_t));
    r->stop_tokens[0] = 'c';
    r->n_stop_tokens = 1;
    expect(run(r), "ab", 3, FINISH_STOP);
}
END_TEST

START_TEST(a_stop_string_cuts_before_itself_wherever_tokens_end)
{
    script_bytes("say ");
    script_token[4] = FIRST_LONG + 1; /* "sto" */
    script_token[5] = 'p';
    struct request *r = request_of(30);
    add_stop(r, "zzz");
    add_stop(r, "stop");
    struct outcome o = run(r);
    ck_assert_int_eq(o.stop_index, 1);
    ck_assert_int_eq(o.stop_token, -1);
    expect(o, "say ", 6, FINISH_STOP);
    r = request_of(30);
    r->include_stop = true;
    add_stop(r, "stop");
    expect(run(r), "say stop", 6, FINISH_STOP);
}
END_TEST

START_TEST(what_was_held_back_comes_out_at_the_end)
{
    script_bytes("say sto");
    struct request *r = request_of(7);
    add_stop(r, "stop");
    expect(run(r), "say sto", 7, FINISH_LENGTH);
    script_token[7] = END_TOKEN;
    r = request_of(30);
    add_stop(r, "stop");
    expect(run(r), "say sto", 8, FINISH_STOP);
}
END_TEST

START_TEST(stop_strings_count_only_after_min_tokens)
{
    script_bytes("stop and stop");
    struct request *r = request_of(30);
    r->min_tokens = 5;
    add_stop(r, "stop");
    expect(run(r), "stop and ", 13, FINISH_STOP);
}
END_TEST

/* Random scripts of bytes and longer tokens against one pass over the whole text. */
START_TEST(random_streams_give_the_text_up_to_the_first_stop_string)
{
    static const char *const pool[] = {"stop", "top",      "aba",    "ab",
                                       "END",  "\xc3\xa9", "hellox", "b"};
    static const uint8_t bytes[] = {'s', 't', 'o', 'p', 'a', 'b', 0xc3, 0xa9, 0xf0, 0x9f, 'E', 'x'};
    srand((unsigned)_i);
    for (int round = 0; round < 20; round++) {
        uint32_t n = 1 + (uint32_t)rand() % 40;
        for (uint32_t i = 0; i < MAX_SCRIPT; i++)
            script_token[i] = rand() % 4 ? bytes[rand() % 12] : FIRST_LONG + rand() % N_LONG;
        struct request *r = request_of(n);
        uint32_t n_stops = (uint32_t)rand() % 4;
        struct buf whole = {0};
        struct err e;
        for (uint32_t i = 0; i < n_stops; i++)
            add_stop(r, pool[rand() % 8]);
        ck_assert_int_eq(tokenizer_decode(tok, script_token, n, true, &whole, &e), OK);
        size_t cut = whole.len;
        for (uint32_t i = 0; i < n_stops; i++) {
            const char *at = memmem(whole.ptr, whole.len, r->stops.s[i].ptr, r->stops.s[i].len);
            if (at && (size_t)(at - whole.ptr) < cut)
                cut = (size_t)(at - whole.ptr);
        }
        bool stops = cut < whole.len;
        struct outcome o = run(r);
        ck_assert_int_eq(o.reason, stops ? FINISH_STOP : FINISH_LENGTH);
        ck_assert_uint_eq(o.text.len, cut);
        ck_assert_mem_eq(buf_str(&o.text).ptr, whole.ptr, cut);
        ck_assert(stops || o.n_tokens == n);
        buf_release(&whole);
        buf_release(&o.text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler/text");
    TCase *tc = tcase_create("text");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, text_comes_whole_and_half_a_code_point_at_the_end_is_replaced);
    tcase_add_test(tc, an_end_token_stops_without_its_text);
    tcase_add_test(tc, ignore_eos_goes_on_past_the_end_token);
    tcase_add_test(tc, include_stop_shows_the_text_of_a_stop_token);
    tcase_add_test(tc, a_stop_string_cuts_before_itself_wherever_tokens_end);
    tcase_add_test(tc, what_was_held_back_comes_out_at_the_end);
    tcase_add_test(tc, stop_strings_count_only_after_min_tokens);
    tcase_add_loop_test(tc, random_streams_give_the_text_up_to_the_first_stop_string, 0, 10);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
