/* gguf_check FILE: everything that loading a model checks before weights are touched. Prints "ok" or
 * one line of error (exit 1). With -p the full list of problems follows on stdout. */
#include <stdio.h>
#include <string.h>

#include "engine/model/weights.h"

static enum status check(const char *path, struct buf *problems, struct err *e)
{
    struct gguf *g = NULL;
    struct hparams h;
    struct weights w;
    enum status st = gguf_open(path, &g, e);
    if (!st)
        st = hparams_read(g, &h, e);
    if (!st)
        st = weights_bind(g, &h, &w, problems, e);
    if (!st)
        weights_release(&w);
    gguf_close(g);
    return st;
}

int main(int argc, char **argv)
{
    bool list = argc == 3 && strcmp(argv[1], "-p") == 0;
    struct err e;
    struct buf problems = {0};
    if (argc != 2 && !list) {
        fprintf(stderr, "usage: gguf_check [-p] FILE\n");
        return 2;
    }
    enum status st = check(argv[argc - 1], &problems, &e);
    if (st)
        fprintf(stderr, "%s\n", e.text);
    else
        puts("ok");
    if (list)
        fputs(buf_str(&problems).ptr, stdout);
    buf_release(&problems);
    return st ? 1 : 0;
}
