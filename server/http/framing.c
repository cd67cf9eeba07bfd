/* The checks; see framing.h. A state a byte: each takes one and says what becomes of it. */
#include "server/http/framing.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "server/errors.h"
#include "server/limits.h"

enum verdict { PASS, DROP, BAD };

enum state {
    START, /* in front of a request line */
    START_LF, /* an empty line there */
    METHOD,
    TARGET,
    TARGET_HEX_1,
    TARGET_HEX_2,
    VERSION,
    VERSION_LF,
    LINE, /* a field's first byte, or the end of the head */
    NAME,
    VALUE,
    VALUE_LF,
    HEAD_LF,
    BODY,
    SIZE_FIRST, /* a chunk's size */
    SIZE,
    EXT_GAP, /* blanks in front of ; */
    EXT_NAME_FIRST,
    EXT_NAME,
    EXT_NAME_GAP, /* blanks in front of = or ; */
    EXT_VALUE_FIRST,
    EXT_VALUE,
    EXT_QUOTED,
    EXT_ESCAPED,
    EXT_QUOTED_END,
    SIZE_LF,
    CHUNK,
    CHUNK_CR,
    CHUNK_LF,
    REFUSED,
    N_STATES
};

enum field { FIELD_OTHER, FIELD_LENGTH, FIELD_ENCODING, FIELD_HOST, FIELD_EXPECT, FIELD_COOKIE };

static const struct {
    const char *name;
    size_t n_name;
    enum field field;
} fields[] = {{"content-length", 14, FIELD_LENGTH},
              {"transfer-encoding", 17, FIELD_ENCODING},
              {"host", 4, FIELD_HOST},
              {"expect", 6, FIELD_EXPECT},
              {"cookie", 6, FIELD_COOKIE}};

/* ---- classes of bytes ---- */

enum { TOKEN = 1, URI = 2, TEXT = 4, HEX = 8, PLAIN = 16 };

static uint8_t class_of(unsigned c)
{
    bool digit = c >= '0' && c <= '9', alpha = (c | 32) >= 'a' && (c | 32) <= 'z';
    uint8_t is = 0;
    if (digit || alpha || (c && c < 128 && strchr("!#$%&'*+-.^_`|~", (int)c)))
        is |= TOKEN;
    /* pchar, / and ? of RFC 3986; % is followed by two digits */
    if (digit || alpha || (c && c < 128 && strchr("-._~!$&'()*+,;=:@/?%", (int)c)))
        is |= URI;
    /* of URI, what no state looks at */
    if ((is & URI) && !strchr("%?&", (int)c))
        is |= PLAIN;
    if (digit || ((c | 32) >= 'a' && (c | 32) <= 'f'))
        is |= HEX;
    if (c == '\t' || (c >= 32 && c != 127))
        is |= TEXT;
    return is;
}

/* Filled before main: read by all threads. */
static uint8_t classes[256];

__attribute__((constructor)) static void fill_classes(void)
{
    for (unsigned c = 0; c < 256; c++)
        classes[c] = class_of(c);
}

static bool is(unsigned char c, uint8_t class)
{
    return (classes[c] & class) != 0;
}

static bool blank(unsigned char c)
{
    return c == ' ' || c == '\t';
}

/* ---- verdicts ---- */

static enum verdict refuse(struct framing *f, int problem, const char *why)
{
    f->why = why;
    f->problem = problem;
    return BAD;
}

static enum verdict bad(struct framing *f, const char *why)
{
    return refuse(f, HTTP_FRAMING, why);
}

/* What is wrong with a byte that may not stand there at all. */
static enum verdict bad_byte(struct framing *f, unsigned char c, const char *where)
{
    if (c == 0)
        return bad(f, "a NUL byte in the request's head or framing");
    if (c == '\n')
        return bad(f, "a line ends with LF alone, CR LF is required");
    return bad(f, where);
}

static enum verdict go(struct framing *f, enum state state, enum verdict v)
{
    f->state = (uint8_t)state;
    return v;
}

/* The LF behind a CR. */
static enum verdict line_feed(struct framing *f, unsigned char c, enum state next, enum verdict v)
{
    return c == '\n' ? go(f, next, v) : bad(f, "a CR without LF");
}

static void keep(struct framing *f, unsigned char c)
{
    if (f->n_text < sizeof(f->text))
        f->text[f->n_text++] = (char)c;
}

static bool text_is(const struct framing *f, const char *want)
{
    return f->n_text == strlen(want) && strncasecmp(f->text, want, f->n_text) == 0;
}

/* ---- the request line ---- */

enum { METHOD_BYTES = 32, VERSION_BYTES = 8 }; /* at most */

static void begin_request(struct framing *f)
{
    uint32_t n_heads = f->n_heads, n_requests = f->n_requests;
    memset(f, 0, offsetof(struct framing, text));
    f->n_heads = n_heads;
    f->n_requests = n_requests;
}

static enum verdict on_method(struct framing *f, unsigned char c)
{
    if (c == ' ' && f->n_text) {
        f->head_method = f->n_text == 4 && memcmp(f->text, "HEAD", 4) == 0;
        f->options = f->n_text == 7 && memcmp(f->text, "OPTIONS", 7) == 0;
        if (f->n_text == 7 && memcmp(f->text, "CONNECT", 7) == 0)
            return bad(f, "CONNECT is not supported: this server is not a proxy");
        f->n_text = 0;
        return go(f, TARGET, PASS);
    }
    if (!is(c, TOKEN) || f->n_text == METHOD_BYTES)
        return bad_byte(f, c, "the request line does not begin with a method and one space");
    keep(f, c);
    return go(f, METHOD, PASS);
}

static enum verdict on_start(struct framing *f, unsigned char c)
{
    if (c == '\r' && !f->n_line)
        return go(f, START_LF, DROP);
    begin_request(f);
    f->n_text = 0;
    return on_method(f, c);
}

/* One empty line in front of a request is forgiven (RFC 9112 2.2). */
static enum verdict on_start_lf(struct framing *f, unsigned char c)
{
    f->n_line = 1;
    return line_feed(f, c, START, DROP);
}

/* http://HOST[:PORT][/...]: as clients send it that take us for a proxy. */
static bool absolute_form(const struct framing *f)
{
    size_t scheme = f->n_text >= 7 && strncasecmp(f->text, "http://", 7) == 0    ? 7
                    : f->n_text >= 8 && strncasecmp(f->text, "https://", 8) == 0 ? 8
                                                                                 : 0;
    size_t n = scheme;
    while (n < f->n_text && f->text[n] != '/' && f->text[n] != '?')
        n++;
    return scheme && n > scheme && n < sizeof(f->text) &&
           framing_host_valid(f->text + scheme, n - scheme);
}

static bool target_valid(const struct framing *f)
{
    if (f->n_text && f->text[0] == '/')
        return true;
    return (f->options && text_is(f, "*")) || absolute_form(f);
}

/* Where a URL has its host, which may be an address in brackets. */
static bool in_authority(const struct framing *f)
{
    enum { SCHEME = 7 }; /* http:// and the host's first byte, or https:// */
    return f->n_text >= SCHEME && f->text[0] != '/' &&
           (f->n_text == SCHEME || !memchr(f->text + SCHEME + 1, '/', f->n_text - SCHEME - 1u));
}

static enum verdict on_target(struct framing *f, unsigned char c)
{
    enum { ARGUMENT_BYTES = 64 }; /* libmicrohttpd's entry of one */
    if (c == ' ' && f->n_text) {
        f->bad_target = !target_valid(f);
        f->n_text = 0;
        return go(f, VERSION, PASS);
    }
    if (!is(c, URI) && !((c == '[' || c == ']') && in_authority(f)))
        return bad_byte(f, c, "the request target contains a character that is not allowed");
    if (c == '?' || c == '&')
        f->n_kept += ARGUMENT_BYTES;
    keep(f, c);
    return go(f, c == '%' ? TARGET_HEX_1 : TARGET, PASS);
}

static enum verdict on_target_hex(struct framing *f, unsigned char c)
{
    if (!is(c, HEX))
        return bad_byte(f, c, "a % in the request target without two hexadecimal digits");
    if (f->state == TARGET_HEX_1) {
        f->zero = c == '0';
        keep(f, c);
        return go(f, TARGET_HEX_2, PASS);
    }
    if (f->zero && c == '0')
        return bad(f, "the request target contains a NUL character");
    keep(f, c);
    return go(f, TARGET, PASS);
}

static enum verdict version_end(struct framing *f)
{
    const char *v = f->text;
    if (f->n_text != VERSION_BYTES || memcmp(v, "HTTP/", 5) != 0 || v[5] < '0' || v[5] > '9' ||
        v[6] != '.' || v[7] < '0' || v[7] > '9')
        return bad(f, "the request line does not end with HTTP/1.1");
    if (v[5] != '1' || v[7] > '1')
        return refuse(f, HTTP_VERSION, "this server speaks HTTP/1.1 and HTTP/1.0");
    if (f->bad_target)
        return bad(f, "the request target is neither a path nor a URL");
    f->old = v[7] == '0';
    return go(f, VERSION_LF, PASS);
}

static enum verdict on_version(struct framing *f, unsigned char c)
{
    if (c == '\r')
        return version_end(f);
    if (c <= ' ' || c >= 127 || f->n_text == VERSION_BYTES)
        return bad_byte(f, c, "the request line does not end with HTTP/1.1");
    keep(f, c);
    return PASS;
}

static enum verdict on_version_lf(struct framing *f, unsigned char c)
{
    return line_feed(f, c, LINE, PASS);
}

/* ---- fields ---- */

static enum verdict keep_or_drop(const struct framing *f)
{
    return f->trailer ? DROP : PASS; /* trailers are not used */
}

static enum verdict on_name(struct framing *f, unsigned char c)
{
    enum { FIELD_BYTES = 64 }; /* libmicrohttpd's entry of one */
    if (c == ':' && f->n_text) {
        f->field = FIELD_OTHER;
        for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
            if (f->n_text == fields[i].n_name &&
                strncasecmp(f->text, fields[i].name, fields[i].n_name) == 0)
                f->field = (uint8_t)fields[i].field;
        f->n_text = 0;
        f->n_kept += FIELD_BYTES;
        if (f->trailer && f->field >= FIELD_LENGTH && f->field <= FIELD_HOST)
            return bad(f, "a trailer must not contain fields that frame or route a request");
        return go(f, VALUE, keep_or_drop(f));
    }
    if (!is(c, TOKEN))
        return bad_byte(f, c,
                        "a header's name is empty or contains a character that is not allowed");
    keep(f, c);
    return go(f, NAME, keep_or_drop(f));
}

static enum verdict on_line(struct framing *f, unsigned char c)
{
    if (c == '\r')
        return go(f, HEAD_LF, PASS);
    if (blank(c))
        return bad(f, "a header line begins with a blank: folded lines are not supported");
    f->n_text = 0;
    return on_name(f, c);
}

static enum verdict length_end(struct framing *f)
{
    uint64_t x = 0;
    if (f->has_length)
        return bad(f, "more than one Content-Length");
    f->has_length = true;
    for (uint16_t i = 0; i < f->n_text; i++) {
        unsigned digit = (unsigned char)f->text[i] - '0';
        if (digit > 9 || x > (UINT64_MAX - digit) / 10)
            return bad(f, digit > 9 ? "Content-Length is not a decimal number"
                                    : "Content-Length is too large a number");
        x = x * 10 + digit;
    }
    f->left = x;
    return f->n_text ? PASS : bad(f, "Content-Length is not a decimal number");
}

static enum verdict encoding_end(struct framing *f)
{
    if (f->has_encoding)
        return bad(f, "more than one Transfer-Encoding");
    f->has_encoding = true;
    return text_is(f, "chunked") ? PASS : bad(f, "Transfer-Encoding other than chunked");
}

static enum verdict host_end(struct framing *f)
{
    f->n_host++;
    if (f->n_host > 1)
        return bad(f, "more than one Host");
    return framing_host_valid(f->text, f->n_text)
               ? PASS
               : bad(f, "Host is not a name with an optional port");
}

static enum verdict expect_end(struct framing *f)
{
    if (f->has_expect)
        return bad(f, "more than one Expect");
    f->has_expect = true;
    return text_is(f, "100-continue") ? PASS
                                      : refuse(f, HTTP_EXPECT, "Expect other than 100-continue");
}

static enum verdict value_end(struct framing *f)
{
    enum verdict v = PASS;
    while (f->n_text && blank((unsigned char)f->text[f->n_text - 1]))
        f->n_text--;
    switch (f->trailer ? FIELD_OTHER : (enum field)f->field) {
    case FIELD_LENGTH:
        v = length_end(f);
        break;
    case FIELD_ENCODING:
        v = encoding_end(f);
        break;
    case FIELD_HOST:
        v = host_end(f);
        break;
    case FIELD_EXPECT:
        v = expect_end(f);
        break;
    case FIELD_OTHER:
    case FIELD_COOKIE:
        break;
    }
    return v == BAD ? BAD : go(f, VALUE_LF, keep_or_drop(f));
}

/* libmicrohttpd takes blanks behind a value as part of it. Within these four none is valid, so that
 * each one behind the first byte can go. */
static enum verdict framing_value(struct framing *f, unsigned char c)
{
    if (!blank(c) && f->n_text == sizeof(f->text))
        return bad(f, "a header that frames or routes the request is too long");
    if (!blank(c) || f->n_text)
        keep(f, c);
    return blank(c) ? DROP : PASS;
}

static enum verdict on_value(struct framing *f, unsigned char c)
{
    if (c == '\r')
        return value_end(f);
    if (!is(c, TEXT))
        return bad_byte(f, c, "a header's value contains a control character");
    if (f->trailer || f->field == FIELD_OTHER)
        return keep_or_drop(f);
    if (f->field != FIELD_COOKIE)
        return framing_value(f, c);
    f->n_kept++; /* cookies are taken apart in a copy */
    return PASS;
}

static enum verdict on_value_lf(struct framing *f, unsigned char c)
{
    return line_feed(f, c, LINE, keep_or_drop(f));
}

static enum verdict end_request(struct framing *f)
{
    f->n_requests++;
    f->n_kept = f->n_line = 0;
    return go(f, START, PASS);
}

static enum verdict on_head_lf(struct framing *f, unsigned char c)
{
    if (c != '\n')
        return bad(f, "a CR without LF");
    if (f->trailer)
        return end_request(f);
    if (f->has_length && f->has_encoding)
        return bad(f, "both Content-Length and Transfer-Encoding are given");
    if (f->has_encoding && f->old)
        return bad(f, "Transfer-Encoding requires HTTP/1.1");
    if (!f->n_host && !f->old)
        return bad(f, "HTTP/1.1 requires a Host");
    f->n_heads++;
    f->n_line = 0;
    if (f->has_encoding)
        return go(f, SIZE_FIRST, PASS);
    return f->left ? go(f, BODY, PASS) : end_request(f);
}

/* ---- chunks ---- */

static enum verdict size_digit(struct framing *f, unsigned char c)
{
    unsigned digit = c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
    bool leading_zero = f->state == SIZE && f->left == 0 && digit == 0;
    if (f->left >> 60)
        return bad(f, "a chunk's size is too large a number");
    f->left = f->left << 4 | digit;
    return go(f, SIZE, leading_zero ? DROP : PASS);
}

static enum verdict on_size_first(struct framing *f, unsigned char c)
{
    f->left = 0;
    f->n_line = 1;
    return is(c, HEX) ? size_digit(f, c) : bad_byte(f, c, "a chunk's size is not hexadecimal");
}

/* What follows a whole size, extension or value of one. */
static enum verdict after_size(struct framing *f, unsigned char c)
{
    if (c == '\r')
        return go(f, SIZE_LF, PASS);
    if (c == ';')
        return go(f, EXT_NAME_FIRST, DROP);
    if (blank(c))
        return go(f, EXT_GAP, DROP);
    return bad_byte(f, c, "a chunk's size is followed by something other than an extension");
}

static enum verdict on_size(struct framing *f, unsigned char c)
{
    return is(c, HEX) ? size_digit(f, c) : after_size(f, c);
}

static enum verdict on_ext_gap(struct framing *f, unsigned char c)
{
    if (c == '\r')
        return bad(f, "blanks after a chunk's size");
    return after_size(f, c);
}

static enum verdict on_ext_name(struct framing *f, unsigned char c)
{
    if (f->state == EXT_NAME_FIRST && blank(c))
        return DROP;
    if (is(c, TOKEN))
        return go(f, EXT_NAME, DROP);
    if (f->state == EXT_NAME_FIRST)
        return bad_byte(f, c, "a chunk extension has no name");
    if (c == '=')
        return go(f, EXT_VALUE_FIRST, DROP);
    return blank(c) ? go(f, EXT_NAME_GAP, DROP) : after_size(f, c);
}

static enum verdict on_ext_name_gap(struct framing *f, unsigned char c)
{
    if (c == '=')
        return go(f, EXT_VALUE_FIRST, DROP);
    return blank(c) ? DROP : on_ext_gap(f, c);
}

static enum verdict on_ext_value(struct framing *f, unsigned char c)
{
    if (f->state == EXT_VALUE_FIRST && blank(c))
        return DROP;
    if (is(c, TOKEN))
        return go(f, EXT_VALUE, DROP);
    if (f->state == EXT_VALUE_FIRST)
        return c == '"' ? go(f, EXT_QUOTED, DROP)
                        : bad_byte(f, c, "a chunk extension has no value after =");
    return after_size(f, c);
}

static enum verdict on_ext_quoted(struct framing *f, unsigned char c)
{
    if (!is(c, TEXT))
        return bad_byte(f, c, "a quoted chunk extension does not end on its line");
    if (f->state == EXT_ESCAPED)
        return go(f, EXT_QUOTED, DROP);
    return go(f, c == '"' ? EXT_QUOTED_END : c == '\\' ? EXT_ESCAPED : EXT_QUOTED, DROP);
}

static enum verdict on_size_lf(struct framing *f, unsigned char c)
{
    f->trailer = f->left == 0;
    f->n_kept = 0;
    return line_feed(f, c, f->trailer ? LINE : CHUNK, PASS);
}

static enum verdict on_chunk_cr(struct framing *f, unsigned char c)
{
    return c == '\r' ? go(f, CHUNK_LF, PASS) : bad(f, "a chunk is longer than its stated size");
}

static enum verdict on_chunk_lf(struct framing *f, unsigned char c)
{
    return line_feed(f, c, SIZE_FIRST, PASS);
}

/* ---- the whole ---- */

static enum verdict (*const on_byte[N_STATES])(struct framing *, unsigned char) = {
    [START] = on_start,
    [START_LF] = on_start_lf,
    [METHOD] = on_method,
    [TARGET] = on_target,
    [TARGET_HEX_1] = on_target_hex,
    [TARGET_HEX_2] = on_target_hex,
    [VERSION] = on_version,
    [VERSION_LF] = on_version_lf,
    [LINE] = on_line,
    [NAME] = on_name,
    [VALUE] = on_value,
    [VALUE_LF] = on_value_lf,
    [HEAD_LF] = on_head_lf,
    [SIZE_FIRST] = on_size_first,
    [SIZE] = on_size,
    [EXT_GAP] = on_ext_gap,
    [EXT_NAME_FIRST] = on_ext_name,
    [EXT_NAME] = on_ext_name,
    [EXT_NAME_GAP] = on_ext_name_gap,
    [EXT_VALUE_FIRST] = on_ext_value,
    [EXT_VALUE] = on_ext_value,
    [EXT_QUOTED] = on_ext_quoted,
    [EXT_ESCAPED] = on_ext_quoted,
    [EXT_QUOTED_END] = after_size,
    [SIZE_LF] = on_size_lf,
    [CHUNK_CR] = on_chunk_cr,
    [CHUNK_LF] = on_chunk_lf,
};

void framing_init(struct framing *f)
{
    memset(f, 0, sizeof(*f));
}

bool framing_idle(const struct framing *f)
{
    return f->state == START;
}

/* Bytes of a body: not looked at. */
static size_t skip(struct framing *f, size_t n)
{
    size_t k = f->left < n ? (size_t)f->left : n;
    f->left -= k;
    if (f->left == 0 && f->state == CHUNK)
        f->state = CHUNK_CR;
    else if (f->left == 0)
        end_request(f);
    return k;
}

/* Counts a byte against the limit of what it belongs to. */
static enum verdict count(struct framing *f)
{
    if (f->state <= HEAD_LF) {
        if (++f->n_kept > HEAD_MAX_BYTES)
            return refuse(f, HTTP_HEAD, "path and headers are too long");
    } else if (++f->n_line > CHUNK_LINE_MAX_BYTES) {
        return bad(f, "the line of a chunk's size is too long");
    }
    return PASS;
}

static enum verdict take_byte(struct framing *f, unsigned char c)
{
    return count(f) == BAD ? BAD : on_byte[f->state](f, c);
}

/* How many of n bytes are of a class; at most as many as the head may still have. */
static size_t span(const struct framing *f, const char *p, size_t n, uint8_t class)
{
    size_t k = 0, most = HEAD_MAX_BYTES - f->n_kept;
    if (most > n)
        most = n;
    while (k < most && is((unsigned char)p[k], class))
        k++;
    return k;
}

/* Of a word that is kept. What is longer than most is judged byte by byte. */
static size_t span_kept(struct framing *f, const char *p, size_t n, uint8_t class, size_t most)
{
    size_t k = span(f, p, n, class), room = most - f->n_text;
    if (k > room)
        k = room;
    memcpy(f->text + f->n_text, p, k);
    f->n_text = (uint16_t)(f->n_text + k);
    return k;
}

/* Bytes that are passed on and leave the state as it is: a body's, and the plain ones of long words, in
 * one go where a byte at a time would come to the same. */
static size_t run(struct framing *f, const char *p, size_t n)
{
    size_t k = 0;
    if (f->state == BODY || f->state == CHUNK)
        return skip(f, n);
    if (f->trailer)
        return 0;
    if (f->state == METHOD)
        k = span_kept(f, p, n, TOKEN, METHOD_BYTES);
    else if (f->state == TARGET)
        k = span_kept(f, p, n, PLAIN, sizeof(f->text));
    else if (f->state == VERSION)
        k = span_kept(f, p, n, PLAIN, VERSION_BYTES);
    else if (f->state == NAME)
        k = span_kept(f, p, n, TOKEN, sizeof(f->text));
    else if (f->state == VALUE && f->field == FIELD_OTHER)
        k = span(f, p, n, TEXT);
    else if (f->state == VALUE && f->field != FIELD_COOKIE)
        k = span_kept(f, p, n, PLAIN, sizeof(f->text));
    f->n_kept += (uint32_t)k;
    return k;
}

size_t framing_take(struct framing *f, char *p, size_t n)
{
    size_t in = 0, out = 0, begin = 0; /* begin: of the request being read */
    while (in < n && f->state != REFUSED) {
        size_t k = run(f, p + in, n - in);
        if (k) {
            if (out != in)
                memmove(p + out, p + in, k);
            in += k;
            out += k;
        } else {
            unsigned char c = (unsigned char)p[in++];
            enum verdict v = take_byte(f, c);
            if (v == PASS)
                p[out++] = (char)c;
            else if (v == BAD)
                f->state = REFUSED;
        }
        if (f->state == START) {
            f->n_partial = 0;
            begin = out;
        }
    }
    f->n_partial += out - begin;
    return out;
}

/* ---- hosts ---- */

static bool port_valid(const char *p, size_t n)
{
    uint32_t port = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9' || (port = port * 10 + (uint32_t)(p[i] - '0')) > 65535)
            return false;
    }
    return true;
}

/* The address between brackets. */
static bool address_valid(const char *p, size_t n)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr a;
    if (n >= sizeof(text))
        return false;
    memcpy(text, p, n);
    text[n] = 0;
    return inet_pton(AF_INET6, text, &a) == 1;
}

static bool name_valid(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (!is(c, URI) || strchr(":@/?", c))
            return false;
        if (c == '%' &&
            (i + 2 >= n || !is((unsigned char)p[i + 1], HEX) || !is((unsigned char)p[i + 2], HEX)))
            return false;
    }
    return n <= 255;
}

bool framing_host_valid(const char *text, size_t n)
{
    const char *close = n && text[0] == '[' ? memchr(text, ']', n) : NULL;
    const char *colon = close ? close + 1 : memchr(text, ':', n);
    size_t n_host = colon ? (size_t)(colon - text) : n;
    if (n > HOST_MAX_BYTES)
        return false;
    if (close ? !address_valid(text + 1, n_host - 2) : !name_valid(text, n_host))
        return false;
    if (n_host == n)
        return true;
    return text[n_host] == ':' && (close || n_host) &&
           port_valid(text + n_host + 1, n - n_host - 1);
}
