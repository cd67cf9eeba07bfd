/* GGUF v2 and v3 files (little-endian): bytes -> metadata and tensor directory. mmap'ed, read-only,
 * no globals. Every count, length, offset, alignment and dimension is checked before use, so everything that
 * the accessors return lies inside the mapping or the copy of its head; only the tensors' data is
 * read from the file itself, and only while a model is loaded. Thread: any after open. */
#ifndef ENGINE_MODEL_GGUF_H
#define ENGINE_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "engine/model/quant.h"

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};

struct gguf_value {
    struct str key; /* borrows from the head, as all below */
    enum gguf_type type;
    enum gguf_type elem_type; /* arrays (of scalars or strings; nested arrays are refused) */
    uint64_t n; /* arrays: elements */
    const uint8_t *data; /* scalar or array bytes; strings: length-prefixed as in the file */
    size_t n_bytes;
};

enum { GGUF_MAX_DIMS = 4 };

struct gguf_tensor {
    struct str name;
    enum quant_type type; /* may be outside the enum: see quant_supported */
    uint32_t n_dims;
    uint64_t dim[GGUF_MAX_DIMS]; /* fastest first; dim[0] = row length; absent ones are 1 */
    const uint8_t *
        data; /* inside the mapping; NULL in vocabulary-only files never happens: those have no tensors */
    size_t n_bytes; /* 0 when the type's block size is not known */
};

struct gguf {
    const uint8_t *map; /* owns (munmap) unless opened from memory */
    size_t n_bytes;
    bool owns_map;
    uint8_t *
        head; /* owns; a copy of everything before the tensors' data, NULL when opened from memory */
    uint32_t version;
    uint32_t alignment;
    struct gguf_value *value; /* owns */
    uint64_t n_values;
    struct gguf_tensor *tensor; /* owns */
    uint64_t n_tensors;
    uint32_t *value_by_key; /* owns; indices into value, ascending keys */
    uint32_t *tensor_by_name; /* owns; indices into tensor, ascending names */
};

/* Limits on the counts of one file: far above any real model, low enough that the directory of a hostile
 * file stays small. */
enum { GGUF_MAX_VALUES = 1 << 16, GGUF_MAX_TENSORS = 1 << 17, GGUF_MAX_NAME_BYTES = 65535 };

/* Errors: ERR_IO; ERR_FORMAT with one clear line; ERR_UNSUPPORTED for version 1, big-endian and split
 * files. A tensor of a type outside quant.h's table is kept in the directory (quant_supported is
 * false for it) so that `inspect` can name it. */
enum status gguf_open(const char *path, struct gguf **out, struct err *e);
/* For tests and fuzzers: bytes borrowed, 8-byte aligned or not. */
enum status gguf_open_memory(const uint8_t *bytes, size_t n, struct gguf **out, struct err *e);
void gguf_close(struct gguf *g);

const struct gguf_value *gguf_find(const struct gguf *g, const char *key); /* NULL when absent */
/* False when absent or of another kind (any integer type converts when the value fits). */
bool gguf_u64(const struct gguf *g, const char *key, uint64_t *out);
bool gguf_f64(const struct gguf *g, const char *key, double *out);
bool gguf_bool(const struct gguf *g, const char *key, bool *out);
bool gguf_string(const struct gguf *g, const char *key, struct str *out);
/* Scalars of an array, converted; i < v->n. */
int64_t gguf_array_i64(const struct gguf_value *v, uint64_t i);
double gguf_array_f64(const struct gguf_value *v, uint64_t i);
/* Walks a string array: start with *cursor = 0; false at the end. */
bool gguf_array_next_string(const struct gguf_value *v, size_t *cursor, struct str *out);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name);
/* Releases the pages of a tensor after repacking (madvise). */
void gguf_drop_pages(const struct gguf *g, const struct gguf_tensor *t);
/* A key or name made safe for a message: at most cap - 1 bytes, with '?' for anything but printable ASCII. */
const char *gguf_printable(struct str s, char *out, size_t cap);

#endif
