/* gguf_inspect FILE: what `millrace inspect FILE` prints. */
#include <stdio.h>

#include "engine/engine.h"

int main(int argc, char **argv)
{
    struct err e;
    bool servable;
    if (argc != 2) {
        fprintf(stderr, "usage: gguf_inspect FILE\n");
        return 2;
    }
    if (engine_inspect(argv[1], stdout, &servable, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    return 0;
}
