/* Loading: plans the place of every matrix, maps the memory, has the workers repack; see cpu_model.h. */
#include "engine/cpu/cpu_model.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/mem.h"

enum { HUGE_PAGE_BYTES = 2 << 20, ALIGN_BYTES = 64, FILL_GROUPS = 64, MATRICES_A_LAYER = 7 };

/* One matrix to repack. */
struct fill {
    struct packed *to;
    const struct gguf_tensor *from;
    uint32_t first_item; /* of the pool run */
    size_t offset; /* in the memory */
};

struct loader {
    struct cpu_model *m;
    const struct pack_format *format;
    struct fill *fill; /* owns */
    uint32_t n_fill, n_items;
    size_t embd_at; /* destination of the rows of untied embeddings */
    size_t used; /* number of bytes planned so far */
};

static size_t plan_bytes(struct loader *l, size_t n_bytes)
{
    size_t at = l->used;
    l->used += (n_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return at;
}

static void plan_matrix(struct loader *l, struct packed *to, const struct gguf_tensor *from)
{
    packed_plan(to, l->format, from);
    l->fill[l->n_fill++] = (struct fill){to, from, l->n_items, plan_bytes(l, packed_bytes(to))};
    l->n_items += (to->n_groups + FILL_GROUPS - 1) / FILL_GROUPS;
}

static size_t vector_bytes(const struct gguf_tensor *t)
{
    return t ? (size_t)t->dim[0] * sizeof(float) + ALIGN_BYTES : 0;
}

static const float *copy_vector(struct loader *l, const struct gguf_tensor *t)
{
    if (!t)
        return NULL;
    float *to = (float *)(void *)(l->m->memory + plan_bytes(l, (size_t)t->dim[0] * sizeof(float)));
    memcpy(to, t->data, (size_t)t->dim[0] * sizeof(float));
    return to;
}

static void plan(struct loader *l, const struct weights *w, uint32_t n_layers)
{
    for (uint32_t i = 0; i < n_layers; i++) {
        const struct layer_weights *from = &w->layer[i];
        struct cpu_layer *to = &l->m->layer[i];
        plan_matrix(l, &to->q, from->q);
        plan_matrix(l, &to->k, from->k);
        plan_matrix(l, &to->v, from->v);
        plan_matrix(l, &to->attn_out, from->attn_out);
        plan_matrix(l, &to->gate, from->gate);
        plan_matrix(l, &to->up, from->up);
        plan_matrix(l, &to->down, from->down);
    }
    plan_matrix(l, &l->m->head, w->output);
}

/* The vectors of a layer: source and destination of each. */
static const struct vector_role {
    size_t from, to; /* offsets in struct layer_weights and struct cpu_layer */
} vector_roles[] = {
#define VECTOR(name)                                                                               \
    {                                                                                              \
        offsetof(struct layer_weights, name), offsetof(struct cpu_layer, name)                     \
    }
    VECTOR(attn_norm), VECTOR(ffn_norm),       VECTOR(q_bias),
    VECTOR(k_bias),    VECTOR(v_bias),         VECTOR(q_norm),
    VECTOR(k_norm),    VECTOR(attn_post_norm), VECTOR(ffn_post_norm),
#undef VECTOR
};

enum { N_VECTORS = sizeof(vector_roles) / sizeof(vector_roles[0]) };

static const struct gguf_tensor *vector_of(const struct layer_weights *w, uint32_t i)
{
    return *(const struct gguf_tensor *const *)(const void *)((const char *)w +
                                                              vector_roles[i].from);
}

static size_t vectors_bytes(const struct weights *w, uint32_t n_layers)
{
    size_t n = vector_bytes(w->output_norm) + vector_bytes(w->rope_freqs);
    for (uint32_t layer = 0; layer < n_layers; layer++)
        for (uint32_t i = 0; i < N_VECTORS; i++)
            n += vector_bytes(vector_of(&w->layer[layer], i));
    return n;
}

static void copy_vectors(struct loader *l, const struct weights *w, uint32_t n_layers)
{
    for (uint32_t layer = 0; layer < n_layers; layer++) {
        for (uint32_t i = 0; i < N_VECTORS; i++) {
            const float **to =
                (const float **)(void *)((char *)&l->m->layer[layer] + vector_roles[i].to);
            *to = copy_vector(l, vector_of(&w->layer[layer], i));
        }
    }
    l->m->output_norm = copy_vector(l, w->output_norm);
}

static void copy_embeddings(struct loader *l, const struct gguf *g)
{
    struct cpu_model *m = l->m;
    if (!m->token_embd)
        return;
    memcpy(m->memory + l->embd_at, m->embd.data, m->embd.n_bytes);
    gguf_drop_pages(g, &m->embd);
    m->embd.data = m->memory + l->embd_at;
}

static enum status map_memory(struct cpu_model *m, struct err *e)
{
    size_t n_bytes = m->n_bytes;
    /* Maps memory at a huge page's boundary. */
    size_t n_map = n_bytes + HUGE_PAGE_BYTES;
    uint8_t *map = mmap(NULL, n_map, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return err_set(e, ERR_NO_MEMORY, "no memory for %zu bytes of weights: %s", n_bytes,
                       strerror(errno));
    size_t head = (HUGE_PAGE_BYTES - (uintptr_t)map % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    if (head > 0)
        munmap(map, head);
    munmap(map + head + n_bytes, n_map - head - n_bytes);
    m->memory = map + head;
    madvise(m->memory, n_bytes, MADV_HUGEPAGE); /* a hint: affects only speed */
    return OK;
}

static void fill_item(void *ctx, uint32_t item, uint32_t worker)
{
    const struct loader *l = ctx;
    (void)worker;
    uint32_t low = 0, high = l->n_fill; /* the last matrix whose first item is <= item */
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (l->fill[mid].first_item <= item)
            low = mid;
        else
            high = mid;
    }
    const struct fill *f = &l->fill[low];
    uint32_t group = (item - f->first_item) * FILL_GROUPS;
    uint32_t left = f->to->n_groups - group;
    packed_fill(f->to, f->from, group, left < FILL_GROUPS ? left : FILL_GROUPS);
}

static void init_rope(struct cpu_model *m, const float *factors)
{
    const struct hparams *h = &m->h;
    m->inv_freq = mem_zalloc(mem_mul(h->rope_dims / 2 + 1, sizeof *m->inv_freq));
    hparams_rope_freqs(h, factors, m->inv_freq, &m->rope_magnitude);
    if (h->unrotated_every > 0) {
        m->no_rotation = mem_zalloc(mem_mul(h->rope_dims, sizeof *m->no_rotation));
        for (uint32_t i = 0; i < h->rope_dims / 2; i++)
            m->no_rotation[i] = 1; /* cosines; the sines behind them are 0 */
    }
    if (h->features & ARCH_LOCAL_LAYERS) {
        m->inv_freq_local = mem_zalloc(mem_mul(h->rope_dims / 2 + 1, sizeof *m->inv_freq_local));
        hparams_rope_freqs_local(h, m->inv_freq_local);
    }
}

/* Plans everything; whole huge pages. */
static struct loader begin(const struct hparams *h, const struct weights *w,
                           const struct pack_format *format)
{
    struct cpu_model *m = mem_zalloc(sizeof *m);
    struct loader l = {.m = m, .format = format};
    m->h = *h;
    m->layer = mem_zalloc(mem_mul(h->n_layers, sizeof *m->layer));
    l.fill = mem_zalloc(mem_mul((size_t)h->n_layers * MATRICES_A_LAYER + 1, sizeof *l.fill));
    plan(&l, w, h->n_layers);
    if (w->output != w->token_embd) {
        m->embd = *w->token_embd;
        m->token_embd = &m->embd;
        l.embd_at = plan_bytes(&l, m->embd.n_bytes);
    }
    size_t n_bytes = l.used + vectors_bytes(w, h->n_layers);
    m->n_bytes = (n_bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    return l;
}

struct cpu_model *cpu_model_plan(const struct hparams *h, const struct weights *w,
                                 const struct pack_format *format)
{
    struct loader l = begin(h, w, format);
    mem_free(l.fill);
    init_rope(l.m, NULL);
    return l.m;
}

enum status cpu_model_load(const struct gguf *g, const struct hparams *h, const struct weights *w,
                           const struct pack_format *format, struct pool *pool,
                           struct cpu_model **out, struct err *e)
{
    struct loader l = begin(h, w, format);
    struct cpu_model *m = l.m;
    enum status s = map_memory(m, e);
    if (s != OK)
        goto out;
    copy_vectors(&l, w, h->n_layers);
    copy_embeddings(&l, g);
    for (uint32_t i = 0; i < l.n_fill; i++)
        l.fill[i].to->data = m->memory + l.fill[i].offset;
    CHECK(l.n_items <= POOL_MAX_ITEMS);
    pool_run(pool, fill_item, &l, l.n_items);
    for (uint32_t i = 0; i < l.n_fill; i++)
        gguf_drop_pages(g, l.fill[i].from);
    init_rope(m, copy_vector(&l, w->rope_freqs));
out:
    mem_free(l.fill);
    if (s != OK) {
        cpu_model_free(m);
        return s;
    }
    *out = m;
    return OK;
}

void cpu_model_free(struct cpu_model *m)
{
    if (!m)
        return;
    if (m->memory)
        munmap(m->memory, m->n_bytes);
    mem_free(m->inv_freq);
    mem_free(m->inv_freq_local);
    mem_free(m->no_rotation);
    mem_free(m->layer);
    mem_free(m);
}

void cpu_model_embedding(const struct cpu_model *m, uint32_t token, float *out)
{
    const struct gguf_tensor *t = m->token_embd;
    if (t)
        quant_dequant(t->type, t->data + token * quant_row_bytes(t->type, t->dim[0]), out,
                      t->dim[0]);
    else
        packed_row(&m->head, token, out);
    if (m->h.embd_scale != 1)
        for (uint32_t i = 0; i < m->h.n_embd; i++)
            out[i] *= m->h.embd_scale;
}
