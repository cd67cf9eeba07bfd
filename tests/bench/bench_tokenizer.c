/* Tokenizer throughput: bench_tokenizer MODEL.gguf [TEXT ...]
 *
 * Prints the load time, MB/s of one thread encoding each text file (repeated to 4 MiB, median of 5),
 * and the time for 64 KiB, 256 KiB and 1 MiB of one character. Without files: built-in English and C.
 * All times are CPU time. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/model/gguf.h"
#include "engine/text/text.h"

static const char english[] =
    "The wheel turned slowly in the grey light before dawn, and the miller's daughter listened to "
    "it "
    "as one listens to the breathing of somebody asleep. In 1874 the river had risen eleven feet "
    "in a "
    "single night; nobody who had seen the flood could speak of it without lowering his voice. "
    "\"It "
    "isn't the water that frightens me,\" she said, \"it's what the water leaves behind.\" They'd "
    "carried the grain upstairs, sack after sack, until their hands bled. Afterwards came the "
    "reckoning: forty-two barrels spoiled, three walls cracked, and a debt that would outlive "
    "them.\n\n";
static const char code[] =
    "static int parse_header(struct parser *p, const char *line, size_t n)\n{\n"
    "    const char *colon = memchr(line, ':', n);\n    if (colon == NULL || colon == line)\n"
    "        return -EINVAL; /* no name */\n    for (size_t i = 0; i < (size_t)(colon - line); "
    "i++) {\n"
    "        if (!is_token_char((unsigned char)line[i]))\n            return -EINVAL;\n    }\n"
    "\tp->header[p->n_headers].name = strndup(line, colon - line);\n"
    "\tp->header[p->n_headers++].value = trim(colon + 1, line + n);\n    return 0;\n}\n\n";

/* CPU time of this thread: others may share the machine. */
static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t encode_ns(const struct tokenizer *t, struct str text, uint32_t *n_tokens)
{
    static const struct encode_options plain;
    struct tokens out = {0};
    struct err e = {0};
    uint64_t start = cpu_ns();
    if (tokenizer_encode(t, text, &plain, &out, &e) != OK) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    uint64_t spent = cpu_ns() - start;
    *n_tokens = out.n;
    tokens_release(&out);
    return spent;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void bench(const struct tokenizer *t, const char *name, struct str unit)
{
    struct buf text = {0};
    uint64_t ns[5];
    uint32_t n = 0;
    while (unit.len && text.len < 4u << 20)
        buf_add_str(&text, unit);
    for (int i = 0; i < 5; i++)
        ns[i] = encode_ns(t, buf_str(&text), &n);
    qsort(ns, 5, sizeof *ns, compare);
    printf("%-24s %7.2f MB/s  best %7.2f  (%.2f bytes a token)\n", name,
           (double)text.len * 1e3 / (double)ns[2], (double)text.len * 1e3 / (double)ns[0],
           (double)text.len / (double)(n ? n : 1));
    buf_release(&text);
}

static void growth(const struct tokenizer *t, const char *name, const char *character)
{
    printf("one character, %-9s", name);
    for (size_t size = 64u << 10; size <= 1u << 20; size *= 4) {
        struct buf text = {0};
        uint32_t n;
        while (text.len < size)
            buf_add_c(&text, character);
        uint64_t ns = encode_ns(t, buf_str(&text), &n);
        printf("  %4zu KiB %7.1f ms", size >> 10, (double)ns / 1e6);
        buf_release(&text);
    }
    printf("\n");
}

static void bench_file(const struct tokenizer *t, const char *path)
{
    FILE *f = fopen(path, "rb");
    struct buf text = {0};
    char part[4096];
    size_t n;
    if (!f) {
        perror(path);
        exit(1);
    }
    while ((n = fread(part, 1, sizeof part, f)) > 0)
        buf_add(&text, part, n);
    fclose(f);
    bench(t, path, buf_str(&text));
    buf_release(&text);
}

int main(int argc, char **argv)
{
    struct gguf *g;
    struct tokenizer *t;
    struct err e = {0};
    if (argc < 2) {
        fprintf(stderr, "usage: bench_tokenizer MODEL.gguf [TEXT ...]\n");
        return 2;
    }
    uint64_t start = cpu_ns();
    if (gguf_open(argv[1], &g, &e) != OK || tokenizer_new(g, STR_LIT(""), &t, &e) != OK) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    printf("%-24s %7.1f ms\n", "load", (double)(cpu_ns() - start) / 1e6);
    for (int i = 2; i < argc; i++)
        bench_file(t, argv[i]);
    if (argc == 2) {
        bench(t, "english", STR_LIT(english));
        bench(t, "code", STR_LIT(code));
    }
    growth(t, "a", "a");
    growth(t, "space", " ");
    growth(t, "newline", "\n");
    growth(t, "digit", "7");
    growth(t, "U+4E2D", "\xe4\xb8\xad");
    growth(t, "U+1F600", "\xf0\x9f\x98\x80");
    growth(t, "backslash", "\\");
    tokenizer_free(t);
    gguf_close(g);
    return 0;
}
