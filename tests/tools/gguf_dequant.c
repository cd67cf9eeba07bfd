/* gguf_dequant FILE TENSOR: the tensor's weights as raw f32 on stdout; exit 1 with one line on error. */
#include <stdio.h>

#include "base/mem.h"
#include "engine/model/gguf.h"

static int write_tensor(const struct gguf_tensor *t)
{
    uint64_t rows = t->dim[1] * t->dim[2] * t->dim[3];
    size_t row_bytes = quant_row_bytes(t->type, t->dim[0]);
    float *row = mem_alloc(mem_mul(t->dim[0], sizeof(float)));
    for (uint64_t i = 0; i < rows; i++) {
        quant_dequant(t->type, t->data + i * row_bytes, row, t->dim[0]);
        fwrite(row, sizeof(float), t->dim[0], stdout);
    }
    mem_free(row);
    return fflush(stdout) ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct gguf *g;
    struct err e;
    if (argc != 3) {
        fprintf(stderr, "usage: gguf_dequant FILE TENSOR\n");
        return 2;
    }
    if (gguf_open(argv[1], &g, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    const struct gguf_tensor *t = gguf_tensor_find(g, argv[2]);
    int rc = 1;
    if (!t || !quant_supported(t->type))
        fprintf(stderr, "no tensor %s of a supported type\n", argv[2]);
    else
        rc = write_tensor(t);
    gguf_close(g);
    return rc;
}
