/* gguf_rope FILE: the rotation frequencies of the model, one per line, then the magnitude. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model/weights.h"

static void print_freqs(const struct gguf *g, const struct hparams *h)
{
    double freq[HPARAMS_MAX_HEAD_DIM / 2];
    float factors[HPARAMS_MAX_HEAD_DIM / 2], magnitude;
    const struct gguf_tensor *t = gguf_tensor_find(g, "rope_freqs.weight");
    if (t)
        quant_dequant(t->type, t->data, factors, h->rope_dims / 2);
    hparams_rope_freqs(h, t ? factors : NULL, freq, &magnitude);
    for (uint32_t i = 0; i < h->rope_dims / 2; i++)
        printf("%.17g\n", freq[i]);
    printf("%.9g\n", (double)magnitude);
}

int main(int argc, char **argv)
{
    struct gguf *g = NULL;
    struct hparams h;
    struct err e;
    if (argc != 2) {
        fprintf(stderr, "usage: gguf_rope FILE\n");
        return 2;
    }
    enum status st = gguf_open(argv[1], &g, &e);
    if (!st)
        st = hparams_read(g, &h, &e);
    if (st)
        fprintf(stderr, "%s\n", e.text);
    else
        print_freqs(g, &h);
    gguf_close(g);
    return st ? 1 : 0;
}
