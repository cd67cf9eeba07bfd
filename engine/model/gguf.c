/* Parses GGUF bytes into a directory of values and tensors; see gguf.h.
 *
 * The file is treated as hostile. One cursor (struct reader) does every read and never passes the end;
 * counts are compared with the bytes left before anything is allocated.
 * Layout of the file: magic, version u32, tensor count u64, value count u64, the values, the tensor
 * infos, padding to the alignment, tensor data. */
#include "engine/model/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

enum {
    DEFAULT_ALIGNMENT = 32,
    MAX_ALIGNMENT = 1 << 20,
    /* Smallest encodings: key length, type and one byte; name length, one dimension, type, offset. */
    MIN_VALUE_BYTES = 8 + 4 + 1,
    MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8,
    N_TYPES = GGUF_F64 + 1
};

static const uint8_t scalar_bytes[N_TYPES] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

struct reader {
    const uint8_t *bytes;
    size_t n;
    size_t at;
    struct err *e;
};

const char *gguf_printable(struct str s, char *out, size_t cap)
{
    size_t n = s.len < cap - 1 ? s.len : cap - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = s.ptr[i] > ' ' && s.ptr[i] <= '~' ? s.ptr[i] : '?';
    out[n] = 0;
    return out;
}

/* ---- the cursor ---- */

static enum status take(struct reader *r, uint64_t n, const char *what, const uint8_t **out)
{
    if (n > r->n - r->at)
        return err_set(r->e, ERR_FORMAT,
                       "gguf file ends inside %s: %llu bytes needed at offset %zu, %zu left", what,
                       (unsigned long long)n, r->at, r->n - r->at);
    *out = r->bytes + r->at;
    r->at += n;
    return OK;
}

static uint64_t load_u64(const uint8_t *p, uint32_t n_bytes)
{
    uint64_t v = 0;
    for (uint32_t i = 0; i < n_bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static enum status take_u32(struct reader *r, const char *what, uint32_t *out)
{
    const uint8_t *p = NULL;
    enum status st = take(r, 4, what, &p);
    if (!st)
        *out = (uint32_t)load_u64(p, 4);
    return st;
}

static enum status take_u64(struct reader *r, const char *what, uint64_t *out)
{
    const uint8_t *p = NULL;
    enum status st = take(r, 8, what, &p);
    if (!st)
        *out = load_u64(p, 8);
    return st;
}

static enum status take_string(struct reader *r, const char *what, struct str *out)
{
    uint64_t n = 0;
    const uint8_t *p = NULL;
    enum status st = take_u64(r, what, &n);
    if (!st)
        st = take(r, n, what, &p);
    if (!st)
        *out = (struct str){(const char *)p, n};
    return st;
}

static enum status take_name(struct reader *r, const char *what, struct str *out)
{
    size_t start = r->at;
    enum status st = take_string(r, what, out);
    if (!st && (out->len == 0 || out->len > GGUF_MAX_NAME_BYTES))
        return err_set(r->e, ERR_FORMAT, "gguf %s at offset %zu has %zu bytes, must be 1 to %d",
                       what, start, out->len, GGUF_MAX_NAME_BYTES);
    return st;
}

/* ---- metadata ---- */

static enum status check_bools(struct reader *r, const uint8_t *p, uint64_t n, const char *key)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] > 1)
            return err_set(r->e, ERR_FORMAT, "gguf value %s: a boolean holds %u", key, p[i]);
    return OK;
}

static enum status take_array(struct reader *r, struct gguf_value *v, const char *key)
{
    uint32_t type;
    enum status st = take_u32(r, key, &type);
    if (!st)
        st = take_u64(r, key, &v->n);
    if (st)
        return st;
    if (type >= N_TYPES || type == GGUF_ARRAY)
        return err_set(r->e, ERR_FORMAT, "gguf value %s: arrays of type %u are not allowed", key,
                       type);
    v->elem_type = (enum gguf_type)type;
    v->data = r->bytes + r->at;
    if (type == GGUF_STRING) {
        size_t start = r->at;
        struct str s;
        for (uint64_t i = 0; i < v->n && !st; i++)
            st = take_string(r, key, &s);
        v->n_bytes = r->at - start;
        return st;
    }
    if (v->n > (r->n - r->at) / scalar_bytes[type])
        return err_set(
            r->e, ERR_FORMAT,
            "gguf file ends inside %s: array of %llu elements at offset %zu, %zu bytes left", key,
            (unsigned long long)v->n, r->at, r->n - r->at);
    v->n_bytes = (size_t)v->n * scalar_bytes[type];
    st = take(r, v->n_bytes, key, &v->data);
    if (!st && type == GGUF_BOOL)
        st = check_bools(r, v->data, v->n, key);
    return st;
}

static enum status take_value(struct reader *r, struct gguf_value *v)
{
    uint32_t type;
    char key[96];
    enum status st = take_name(r, "a metadata key", &v->key);
    if (!st)
        st = take_u32(r, gguf_printable(v->key, key, sizeof(key)), &type);
    if (st)
        return st;
    if (type >= N_TYPES)
        return err_set(r->e, ERR_FORMAT, "gguf value %s has unknown type %u", key, type);
    v->type = (enum gguf_type)type;
    if (type == GGUF_ARRAY)
        return take_array(r, v, key);
    size_t start = r->at;
    if (type == GGUF_STRING) {
        struct str s;
        st = take_string(r, key, &s);
        v->data = r->bytes + start;
        v->n_bytes = r->at - start;
        return st;
    }
    v->n_bytes = scalar_bytes[type];
    st = take(r, v->n_bytes, key, &v->data);
    if (!st && type == GGUF_BOOL)
        st = check_bools(r, v->data, 1, key);
    return st;
}

/* ---- sorted indices: lookup is logarithmic for any names, and duplicates end up side by side ---- */

struct named {
    struct str name;
    uint32_t index;
};

static int str_order(struct str a, struct str b)
{
    int d = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
    return d ? d : (a.len > b.len) - (a.len < b.len);
}

static int named_order(const void *a, const void *b)
{
    return str_order(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* Sorts the names; ERR_FORMAT when one occurs twice. */
static enum status sort_names(struct named *names, uint64_t n, const char *what, uint32_t *order,
                              struct err *e)
{
    char name[96];
    qsort(names, n, sizeof(*names), named_order);
    for (uint64_t i = 0; i < n; i++) {
        order[i] = names[i].index;
        if (i && str_eq(names[i].name, names[i - 1].name))
            return err_set(e, ERR_FORMAT, "gguf %s %s occurs twice", what,
                           gguf_printable(names[i].name, name, sizeof(name)));
    }
    return OK;
}

static enum status no_memory(struct err *e, uint64_t n, const char *what)
{
    return err_set(e, ERR_NO_MEMORY, "out of memory for a directory of %llu gguf %s",
                   (unsigned long long)n, what);
}

static enum status index_values(struct gguf *g, struct err *e)
{
    struct named *names = mem_try_alloc((size_t)g->n_values * sizeof(*names));
    g->value_by_key = mem_try_alloc((size_t)g->n_values * sizeof(*g->value_by_key));
    enum status st = names && g->value_by_key ? OK : no_memory(e, g->n_values, "values");
    for (uint64_t i = 0; i < g->n_values && !st; i++)
        names[i] = (struct named){g->value[i].key, (uint32_t)i};
    if (!st)
        st = sort_names(names, g->n_values, "value", g->value_by_key, e);
    mem_free(names);
    return st;
}

static enum status index_tensors(struct gguf *g, struct err *e)
{
    struct named *names = mem_try_alloc((size_t)g->n_tensors * sizeof(*names));
    g->tensor_by_name = mem_try_alloc((size_t)g->n_tensors * sizeof(*g->tensor_by_name));
    enum status st = names && g->tensor_by_name ? OK : no_memory(e, g->n_tensors, "tensors");
    for (uint64_t i = 0; i < g->n_tensors && !st; i++)
        names[i] = (struct named){g->tensor[i].name, (uint32_t)i};
    if (!st)
        st = sort_names(names, g->n_tensors, "tensor", g->tensor_by_name, e);
    mem_free(names);
    return st;
}

static enum status take_values(struct reader *r, struct gguf *g)
{
    if (g->n_values > (r->n - r->at) / MIN_VALUE_BYTES || g->n_values > GGUF_MAX_VALUES)
        return err_set(
            r->e, ERR_FORMAT,
            "gguf value count %llu is more than the file holds (%zu bytes left, limit %d)",
            (unsigned long long)g->n_values, r->n - r->at, GGUF_MAX_VALUES);
    g->value = mem_try_zalloc((size_t)g->n_values * sizeof(*g->value));
    if (!g->value)
        return no_memory(r->e, g->n_values, "values");
    enum status st = OK;
    for (uint64_t i = 0; i < g->n_values && !st; i++)
        st = take_value(r, &g->value[i]);
    return st ? st : index_values(g, r->e);
}

/* ---- tensors ---- */

/* Elements of the tensor; every dimension and the product are checked. */
static enum status check_dims(const struct gguf_tensor *t, const char *name, struct err *e,
                              uint64_t *n_elements)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        if (t->dim[i] == 0)
            return err_set(e, ERR_FORMAT, "gguf tensor %s: dimension %u is 0", name, i);
        if (__builtin_mul_overflow(n, t->dim[i], &n) || n > (UINT64_MAX >> 5))
            return err_set(e, ERR_FORMAT, "gguf tensor %s: dimensions overflow", name);
    }
    *n_elements = n;
    return OK;
}

static enum status check_blocks(struct gguf_tensor *t, const char *name, struct err *e)
{
    uint64_t n = 0;
    uint32_t block_weights, block_bytes;
    enum status st = check_dims(t, name, e, &n);
    if (st || !quant_block(t->type, &block_weights, &block_bytes))
        return st;
    if (t->dim[0] % block_weights)
        return err_set(e, ERR_FORMAT,
                       "gguf tensor %s: row length %llu is not a multiple of the %s block of %u",
                       name, (unsigned long long)t->dim[0], quant_name(t->type), block_weights);
    uint64_t n_bytes;
    if (__builtin_mul_overflow(n / block_weights, (uint64_t)block_bytes, &n_bytes))
        return err_set(e, ERR_FORMAT, "gguf tensor %s: dimensions overflow", name);
    t->n_bytes = n_bytes;
    return OK;
}

/* *offset keeps the tensor's offset until the start of the data section is known. */
static enum status take_tensor(struct reader *r, struct gguf_tensor *t, uint64_t *offset)
{
    char name[96];
    uint32_t type;
    enum status st = take_name(r, "a tensor name", &t->name);
    if (!st)
        st = take_u32(r, gguf_printable(t->name, name, sizeof(name)), &t->n_dims);
    if (st)
        return st;
    if (t->n_dims < 1 || t->n_dims > GGUF_MAX_DIMS)
        return err_set(r->e, ERR_FORMAT, "gguf tensor %s has %u dimensions, must be 1 to %d", name,
                       t->n_dims, GGUF_MAX_DIMS);
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++)
        t->dim[i] = 1;
    for (uint32_t i = 0; i < t->n_dims && !st; i++)
        st = take_u64(r, name, &t->dim[i]);
    if (!st)
        st = take_u32(r, name, &type);
    if (!st)
        st = take_u64(r, name, offset);
    if (st)
        return st;
    t->type = (enum quant_type)type;
    return check_blocks(t, name, r->e);
}

static enum status place_tensor(struct gguf *g, struct gguf_tensor *t, uint64_t data_start,
                                uint64_t offset, struct err *e)
{
    char name[96];
    uint64_t start, end;
    gguf_printable(t->name, name, sizeof(name));
    if (offset % g->alignment)
        return err_set(e, ERR_FORMAT, "gguf tensor %s: offset %llu is not a multiple of %u", name,
                       (unsigned long long)offset, g->alignment);
    if (__builtin_add_overflow(data_start, offset, &start) ||
        __builtin_add_overflow(start, (uint64_t)t->n_bytes, &end) || end > g->n_bytes)
        return err_set(e, ERR_FORMAT,
                       "gguf file is incomplete: tensor %s lies outside the file, which has %zu "
                       "bytes and needs %llu + %llu + %zu",
                       name, g->n_bytes, (unsigned long long)data_start, (unsigned long long)offset,
                       t->n_bytes);
    t->data = g->map + start;
    return OK;
}

static int by_place(const void *a_, const void *b_)
{
    const struct gguf_tensor *a = *(const struct gguf_tensor *const *)a_;
    const struct gguf_tensor *b = *(const struct gguf_tensor *const *)b_;
    return (a->data > b->data) - (a->data < b->data);
}

/* No byte belongs to two tensors: such a file was not written by a converter, or its offsets are damaged. */
static enum status refuse_overlaps(const struct gguf *g, struct err *e)
{
    const struct gguf_tensor **at = mem_try_alloc((size_t)g->n_tensors * sizeof(*at));
    char name[96], other[96];
    enum status st = at ? OK : no_memory(e, g->n_tensors, "tensors");
    uint64_t n = 0;
    for (uint64_t i = 0; i < g->n_tensors && !st; i++)
        if (g->tensor[i].n_bytes)
            at[n++] = &g->tensor[i];
    if (n)
        qsort(at, n, sizeof(*at), by_place);
    for (uint64_t i = 1; i < n && !st; i++)
        if (at[i]->data < at[i - 1]->data + at[i - 1]->n_bytes)
            st = err_set(e, ERR_FORMAT, "gguf tensors %s and %s overlap",
                         gguf_printable(at[i - 1]->name, name, sizeof(name)),
                         gguf_printable(at[i]->name, other, sizeof(other)));
    mem_free(at);
    return st;
}

static enum status take_tensors(struct reader *r, struct gguf *g)
{
    if (g->n_tensors > (r->n - r->at) / MIN_TENSOR_BYTES || g->n_tensors > GGUF_MAX_TENSORS)
        return err_set(
            r->e, ERR_FORMAT,
            "gguf tensor count %llu is more than the file holds (%zu bytes left, limit %d)",
            (unsigned long long)g->n_tensors, r->n - r->at, GGUF_MAX_TENSORS);
    g->tensor = mem_try_zalloc((size_t)g->n_tensors * sizeof(*g->tensor));
    uint64_t *offset = mem_try_alloc((size_t)g->n_tensors * sizeof(*offset));
    enum status st = g->tensor && offset ? OK : no_memory(r->e, g->n_tensors, "tensors");
    for (uint64_t i = 0; i < g->n_tensors && !st; i++)
        st = take_tensor(r, &g->tensor[i], &offset[i]);
    uint64_t a = g->alignment;
    uint64_t data_start = (r->at + a - 1) / a * a;
    for (uint64_t i = 0; i < g->n_tensors && !st; i++)
        st = place_tensor(g, &g->tensor[i], data_start, offset[i], r->e);
    mem_free(offset);
    if (!st)
        st = index_tensors(g, r->e);
    return st ? st : refuse_overlaps(g, r->e);
}

/* ---- a private copy of the head ---- */

static const void *moved(const struct gguf *g, const void *p)
{
    return g->head + ((const uint8_t *)p - g->map);
}

/* The directory points into these bytes as long as the model is served, and the file may be truncated or
 * overwritten in the meantime. */
static enum status keep_head(struct gguf *g, size_t n_bytes, struct err *e)
{
    g->head = mem_try_alloc(n_bytes);
    if (!g->head)
        return err_set(e, ERR_NO_MEMORY, "out of memory for a gguf head of %zu bytes", n_bytes);
    memcpy(g->head, g->map, n_bytes);
    for (uint64_t i = 0; i < g->n_values; i++) {
        g->value[i].key.ptr = moved(g, g->value[i].key.ptr);
        g->value[i].data = moved(g, g->value[i].data);
    }
    for (uint64_t i = 0; i < g->n_tensors; i++)
        g->tensor[i].name.ptr = moved(g, g->tensor[i].name.ptr);
    madvise((void *)(uintptr_t)g->map, n_bytes, MADV_DONTNEED); /* the copy is enough */
    return OK;
}

/* ---- the file ---- */

static enum status take_header(struct reader *r, struct gguf *g)
{
    const uint8_t *magic;
    if (r->n < 4 || memcmp(r->bytes, "GGUF", 4) != 0)
        return err_set(r->e, ERR_FORMAT, "not a gguf file: the first four bytes are not \"GGUF\"");
    enum status st = take(r, 4, "the header", &magic);
    if (!st)
        st = take_u32(r, "the header", &g->version);
    if (st)
        return st;
    if ((g->version & 0xffff) == 0 && g->version)
        return err_set(r->e, ERR_UNSUPPORTED, "big-endian gguf files are not supported");
    if (g->version != 2 && g->version != 3)
        return err_set(r->e, ERR_UNSUPPORTED, "gguf version %u is not supported, only 2 and 3",
                       g->version);
    st = take_u64(r, "the header", &g->n_tensors);
    if (!st)
        st = take_u64(r, "the header", &g->n_values);
    return st;
}

static enum status read_alignment(struct gguf *g, struct err *e)
{
    uint64_t a = DEFAULT_ALIGNMENT;
    if (gguf_find(g, "general.alignment") && !gguf_u64(g, "general.alignment", &a))
        return err_set(e, ERR_FORMAT, "general.alignment is not a whole number");
    if (a < 8 || a > MAX_ALIGNMENT || (a & (a - 1)))
        return err_set(e, ERR_FORMAT, "general.alignment %llu is not a power of two from 8 to %d",
                       (unsigned long long)a, MAX_ALIGNMENT);
    g->alignment = (uint32_t)a;
    return OK;
}

static enum status refuse_split(const struct gguf *g, struct err *e)
{
    uint64_t n = 0;
    if (gguf_u64(g, "split.count", &n) && n > 1)
        return err_set(e, ERR_UNSUPPORTED,
                       "gguf file is one of %llu parts: merge them into one file first",
                       (unsigned long long)n);
    return OK;
}

static enum status parse(struct gguf *g, struct err *e)
{
    struct reader r = {g->map, g->n_bytes, 0, e};
    enum status st = take_header(&r, g);
    if (st)
        g->n_values = g->n_tensors = 0;
    if (!st)
        st = take_values(&r, g);
    if (!st)
        st = refuse_split(g, e);
    if (!st)
        st = read_alignment(g, e);
    if (!st)
        st = take_tensors(&r, g);
    if (!st && g->owns_map)
        st = keep_head(g, r.at, e);
    return st;
}

static enum status open_bytes(const uint8_t *bytes, size_t n, bool owns_map, struct gguf **out,
                              struct err *e)
{
    struct gguf *g = mem_zalloc(sizeof(*g));
    g->map = bytes;
    g->n_bytes = n;
    g->owns_map = owns_map;
    enum status st = parse(g, e);
    if (st) {
        gguf_close(g);
        return st;
    }
    *out = g;
    return OK;
}

enum status gguf_open_memory(const uint8_t *bytes, size_t n, struct gguf **out, struct err *e)
{
    return open_bytes(bytes, n, false, out, e);
}

static enum status map_file(int fd, const char *path, const uint8_t **map, size_t *n_bytes,
                            struct err *e)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return err_set(e, ERR_IO, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return err_set(e, ERR_IO, "cannot read %s: not a regular file", path);
    if (info.st_size == 0)
        return err_set(e, ERR_FORMAT, "%s: not a gguf file: it is empty", path);
    void *p = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return err_set(e, ERR_IO, "cannot map %s: %s", path, strerror(errno));
    *map = p;
    *n_bytes = (size_t)info.st_size;
    return OK;
}

enum status gguf_open(const char *path, struct gguf **out, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(e, ERR_IO, "cannot open %s: %s", path, strerror(errno));
    const uint8_t *map = NULL;
    size_t n = 0;
    enum status st = map_file(fd, path, &map, &n, e);
    close(fd);
    if (st)
        return st;
    st = open_bytes(map, n, true, out, e);
    if (st)
        err_prefix(e, "%s", path);
    return st;
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    if (g->owns_map)
        munmap((void *)g->map, g->n_bytes);
    mem_free(g->head);
    mem_free(g->value);
    mem_free(g->tensor);
    mem_free(g->value_by_key);
    mem_free(g->tensor_by_name);
    mem_free(g);
}

/* ---- lookup ---- */

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    struct str want = str_of(key);
    uint64_t low = 0, high = g->n_values;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        const struct gguf_value *v = &g->value[g->value_by_key[mid]];
        int d = str_order(want, v->key);
        if (d == 0)
            return v;
        if (d < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    struct str want = str_of(name);
    uint64_t low = 0, high = g->n_tensors;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        const struct gguf_tensor *t = &g->tensor[g->tensor_by_name[mid]];
        int d = str_order(want, t->name);
        if (d == 0)
            return t;
        if (d < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

/* ---- conversion ---- */

static bool is_integer(enum gguf_type type)
{
    return type <= GGUF_I32 || type == GGUF_U64 || type == GGUF_I64;
}

static bool is_signed(enum gguf_type type)
{
    return type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
}

/* Any integer type or bool, sign-extended; u64 above INT64_MAX wraps. */
static int64_t load_i64(enum gguf_type type, const uint8_t *p)
{
    uint64_t v = load_u64(p, scalar_bytes[type]);
    switch (type) {
    case GGUF_I8:
        return (int8_t)v;
    case GGUF_I16:
        return (int16_t)v;
    case GGUF_I32:
        return (int32_t)v;
    default:
        return (int64_t)v;
    }
}

static double load_f64(enum gguf_type type, const uint8_t *p)
{
    if (type == GGUF_F32) {
        float f;
        memcpy(&f, p, 4);
        return f;
    }
    if (type == GGUF_F64) {
        double d;
        memcpy(&d, p, 8);
        return d;
    }
    if (type == GGUF_U64)
        return (double)load_u64(p, 8);
    return (double)load_i64(type, p);
}

bool gguf_u64(const struct gguf *g, const char *key, uint64_t *out)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (!v || !is_integer(v->type))
        return false;
    int64_t i = load_i64(v->type, v->data);
    if (i < 0 && is_signed(v->type))
        return false;
    *out = (uint64_t)i;
    return true;
}

bool gguf_f64(const struct gguf *g, const char *key, double *out)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (!v || !(is_integer(v->type) || v->type == GGUF_F32 || v->type == GGUF_F64))
        return false;
    *out = load_f64(v->type, v->data);
    return true;
}

bool gguf_bool(const struct gguf *g, const char *key, bool *out)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (!v || v->type != GGUF_BOOL)
        return false;
    *out = v->data[0] != 0;
    return true;
}

bool gguf_string(const struct gguf *g, const char *key, struct str *out)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (!v || v->type != GGUF_STRING)
        return false;
    *out = (struct str){(const char *)v->data + 8, v->n_bytes - 8};
    return true;
}

int64_t gguf_array_i64(const struct gguf_value *v, uint64_t i)
{
    const uint8_t *p = v->data + i * scalar_bytes[v->elem_type];
    if (v->elem_type != GGUF_F32 && v->elem_type != GGUF_F64)
        return load_i64(v->elem_type, p);
    double d = load_f64(v->elem_type, p);
    /* NaN and values out of range have no integer: the caller gets a value that no count can have. */
    return d >= -9e18 && d <= 9e18 ? (int64_t)d : INT64_MIN;
}

double gguf_array_f64(const struct gguf_value *v, uint64_t i)
{
    return load_f64(v->elem_type, v->data + i * scalar_bytes[v->elem_type]);
}

bool gguf_array_next_string(const struct gguf_value *v, size_t *cursor, struct str *out)
{
    if (v->type != GGUF_ARRAY || v->elem_type != GGUF_STRING || *cursor >= v->n_bytes)
        return false;
    const uint8_t *p = v->data + *cursor;
    size_t n = (size_t)load_u64(p, 8);
    *out = (struct str){(const char *)p + 8, n};
    *cursor += 8 + n;
    return true;
}

void gguf_drop_pages(const struct gguf *g, const struct gguf_tensor *t)
{
    if (!g->owns_map || t->n_bytes == 0)
        return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)t->data & ~(page - 1);
    uintptr_t end = (uintptr_t)t->data + t->n_bytes;
    /* A page shared with a neighbouring tensor is simply read again: the mapping is clean and private. */
    madvise((void *)start, end - start, MADV_DONTNEED);
}
