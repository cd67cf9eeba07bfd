/* The table of named prefixes and its files; see named.h. */
#include "kvpool/named.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "kvpool/file.h"

enum { NAMED_VERSION = 3, MODEL_BYTES = 16, MODEL_SHOWN_BYTES = 8, UNIT_BYTES = 4096 };
enum { FILE_NAME_BYTES = 2 * (MODEL_SHOWN_BYTES + KV_NAMED_OWNER_BYTES + KV_NAMED_NAME_BYTES) + 3 };

/* First bytes of a file; then keys, tokens, owner, name, salt, messages. */
struct named_head {
    char magic[8]; /* "MRKVNAM" and NUL */
    uint32_t crc; /* CRC-32C of the whole file with this field 0 */
    uint32_t version;
    uint8_t model[MODEL_BYTES];
    uint64_t domain;
    int64_t made_unix_s;
    uint64_t place;
    uint32_t n_tokens, n_keys, n_owner, n_name, n_salt, n_messages;
};
_Static_assert(sizeof(struct named_head) == 80, "the head has no gaps");

static const char magic[8] = "MRKVNAM";

/* The part of another model's name that is kept: the blocks that it pins. */
struct foreign {
    uint64_t domain;
    struct kv_key *keys; /* owns [n_keys] */
    uint32_t n_keys;
};

struct kv_named {
    struct mutex lock;
    int folder; /* owns; -1: memory only */
    uint8_t model[MODEL_BYTES];
    struct kv_named_prefix **at; /* owns [KV_NAMED_MAX]; under lock, in order of place */
    uint32_t n;
    uint64_t n_tokens; /* of all prefixes, under lock */
    struct foreign *foreign; /* owns [n_foreign]; from the start on */
    uint32_t n_foreign;
    uint64_t max_bytes;
    atomic_uint_fast64_t n_bytes; /* of files, whole units; written under lock */
};

/* ---- one prefix ---- */

static struct kv_named_prefix *copy_of(const struct kv_named_prefix *p)
{
    size_t n_tokens = mem_mul(p->n_tokens, sizeof(*p->tokens));
    size_t n_keys = mem_mul(p->n_keys, sizeof(*p->keys));
    uint8_t *at = mem_zalloc(sizeof(*p) + n_keys + n_tokens + p->owner.len + p->name.len +
                             p->salt.len + p->messages.len);
    struct kv_named_prefix *copy = (struct kv_named_prefix *)at;
    *copy = *p;
    at += sizeof(*p);
    const struct {
        const void *from;
        size_t n;
        const void **to;
    } part[] = {
        {p->keys, n_keys, (const void **)&copy->keys},
        {p->tokens, n_tokens, (const void **)&copy->tokens},
        {p->owner.ptr, p->owner.len, (const void **)&copy->owner.ptr},
        {p->name.ptr, p->name.len, (const void **)&copy->name.ptr},
        {p->salt.ptr, p->salt.len, (const void **)&copy->salt.ptr},
        {p->messages.ptr, p->messages.len, (const void **)&copy->messages.ptr},
    };
    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        if (part[i].n)
            memcpy(at, part[i].from, part[i].n);
        *part[i].to = at;
        at += part[i].n;
    }
    return copy;
}

void kv_named_prefix_free(struct kv_named_prefix *p)
{
    mem_free(p);
}

static enum status check(const struct kv_named_prefix *p, struct err *e)
{
    if (p->name.len < 1 || p->name.len > KV_NAMED_NAME_BYTES)
        return err_set(e, ERR_INVALID, "name of a prefix has %zu bytes, not 1..%d", p->name.len,
                       KV_NAMED_NAME_BYTES);
    if (p->owner.len > KV_NAMED_OWNER_BYTES)
        return err_set(e, ERR_INVALID, "owner of a prefix has %zu bytes, over %d", p->owner.len,
                       KV_NAMED_OWNER_BYTES);
    if (p->salt.len > KV_NAMED_SALT_BYTES)
        return err_set(e, ERR_INVALID, "salt of a prefix has %zu bytes, over %d", p->salt.len,
                       KV_NAMED_SALT_BYTES);
    if (p->messages.len > KV_NAMED_MESSAGES_BYTES)
        return err_set(e, ERR_TOO_LARGE, "messages of a prefix have %zu bytes, over %d",
                       p->messages.len, KV_NAMED_MESSAGES_BYTES);
    if (p->n_tokens < 1 || p->n_tokens > KV_NAMED_TOKENS)
        return err_set(e, ERR_TOO_LARGE, "prefix has %u tokens, not 1..%d", p->n_tokens,
                       KV_NAMED_TOKENS);
    if (p->n_keys > p->n_tokens)
        return err_set(e, ERR_INVALID, "prefix of %u tokens has %u blocks", p->n_tokens, p->n_keys);
    return OK;
}

/* ---- files ---- */

static void add_hex(char **to, struct str s)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < s.len; i++) {
        *(*to)++ = digits[(uint8_t)s.ptr[i] >> 4];
        *(*to)++ = digits[(uint8_t)s.ptr[i] & 15];
    }
}

static void file_name(char out[FILE_NAME_BYTES], const uint8_t model[MODEL_BYTES], struct str owner,
                      struct str name)
{
    add_hex(&out, (struct str){(const char *)model, MODEL_SHOWN_BYTES});
    *out++ = '-';
    add_hex(&out, owner);
    *out++ = '-';
    add_hex(&out, name);
    *out = 0;
}

static uint64_t units(uint64_t n_bytes)
{
    return (n_bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
}

/* Bytes that a prefix takes on disk. */
static uint64_t file_bytes(const struct kv_named *n, const struct kv_named_prefix *p)
{
    if (n->folder < 0)
        return 0;
    return units(sizeof(struct named_head) + p->n_keys * sizeof(*p->keys) +
                 p->n_tokens * sizeof(*p->tokens) + p->owner.len + p->name.len + p->salt.len +
                 p->messages.len);
}

static enum status save(struct kv_named *n, const struct kv_named_prefix *p, struct err *e)
{
    char name[FILE_NAME_BYTES];
    struct buf rest = {0};
    struct named_head head = {.version = NAMED_VERSION,
                              .domain = p->domain,
                              .made_unix_s = p->made_unix_s,
                              .place = p->place,
                              .n_tokens = p->n_tokens,
                              .n_keys = p->n_keys,
                              .n_owner = (uint32_t)p->owner.len,
                              .n_name = (uint32_t)p->name.len,
                              .n_salt = (uint32_t)p->salt.len,
                              .n_messages = (uint32_t)p->messages.len};
    if (n->folder < 0)
        return OK;
    memcpy(head.magic, magic, sizeof(magic));
    memcpy(head.model, n->model, sizeof(head.model));
    buf_add(&rest, p->keys, p->n_keys * sizeof(*p->keys));
    buf_add(&rest, p->tokens, p->n_tokens * sizeof(*p->tokens));
    buf_add_str(&rest, p->owner);
    buf_add_str(&rest, p->name);
    buf_add_str(&rest, p->salt);
    buf_add_str(&rest, p->messages);
    head.crc = crc32c(crc32c(0, &head, sizeof(head)), rest.ptr, rest.len);
    file_name(name, n->model, p->owner, p->name);
    bool ok = kv_file_replace(n->folder, name, &head, sizeof(head), rest.ptr, rest.len, true);
    int error = errno;
    buf_release(&rest);
    if (ok)
        return OK;
    return err_set(e, ERR_IO, "cannot write a named prefix: %s", strerror(error));
}

/* Sets views into text; false: the file is invalid. */
static bool parse(struct buf *text, struct kv_named_prefix *p, uint8_t model[MODEL_BYTES])
{
    struct named_head head;
    if (text->len < sizeof(head))
        return false;
    memcpy(&head, text->ptr, sizeof(head));
    uint32_t crc = head.crc;
    head.crc = 0;
    size_t n_rest = text->len - sizeof(head);
    const char *rest = text->ptr + sizeof(head);
    size_t n_tokens = head.n_tokens * sizeof(*p->tokens), n_keys = head.n_keys * sizeof(*p->keys);
    if (memcmp(head.magic, magic, sizeof(magic)) != 0 || head.version != NAMED_VERSION ||
        crc != crc32c(crc32c(0, &head, sizeof(head)), rest, n_rest) ||
        n_rest != n_tokens + n_keys + head.n_owner + head.n_name + head.n_salt + head.n_messages)
        return false;
    *p = (struct kv_named_prefix){.tokens = (const int32_t *)(rest + n_keys),
                                  .n_tokens = head.n_tokens,
                                  .keys = (const struct kv_key *)rest,
                                  .n_keys = head.n_keys,
                                  .domain = head.domain,
                                  .made_unix_s = head.made_unix_s,
                                  .place = head.place};
    rest += n_tokens + n_keys;
    memcpy(model, head.model, sizeof(head.model));
    p->owner = (struct str){rest, head.n_owner};
    p->name = (struct str){rest + head.n_owner, head.n_name};
    p->salt = (struct str){rest + head.n_owner + head.n_name, head.n_salt};
    p->messages = (struct str){p->salt.ptr + head.n_salt, head.n_messages};
    return check(p, NULL) == OK;
}

static void keep_foreign(struct kv_named *n, const struct kv_named_prefix *p)
{
    n->foreign = mem_realloc(n->foreign, mem_mul(n->n_foreign + 1, sizeof(*n->foreign)));
    n->foreign[n->n_foreign++] =
        (struct foreign){.domain = p->domain,
                         .keys = mem_dup(p->keys, p->n_keys * sizeof(*p->keys)),
                         .n_keys = p->n_keys};
}

/* Why a file that was read is ignored, or NULL when it was added. */
static const char *take_in(struct kv_named *n, struct buf *text, const char *name)
{
    char wanted[FILE_NAME_BYTES];
    uint8_t model[MODEL_BYTES];
    struct kv_named_prefix p;
    if (!parse(text, &p, model))
        return "damaged";
    file_name(wanted, model, p.owner, p.name);
    if (strcmp(wanted, name) != 0)
        return "damaged";
    if (memcmp(model, n->model, sizeof(model)) != 0) {
        keep_foreign(n, &p);
        return NULL;
    }
    if (n->n == KV_NAMED_MAX || n->n_tokens + p.n_tokens > KV_NAMED_ALL_TOKENS)
        return "one too many";
    n->at[n->n++] = copy_of(&p);
    n->n_tokens += p.n_tokens;
    return NULL;
}

/* Whatever it is, its space counts. */
static void load_file(struct kv_named *n, const char *name)
{
    enum {
        MOST = sizeof(struct named_head) + 4 * KV_NAMED_TOKENS + 16 * KV_NAMED_TOKENS +
               KV_NAMED_MESSAGES_BYTES + 4096
    };
    struct buf text = {0};
    struct stat st;
    struct err e;
    if (fstatat(n->folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        n->n_bytes += units((uint64_t)st.st_size);
    if (kv_file_slurp(n->folder, name, MOST, &text, &e) != OK) {
        log_warn("a file of a named prefix is ignored: %s", e.text);
    } else {
        const char *why = take_in(n, &text, name);
        if (why)
            log_warn("file '%s' of a named prefix is %s and is ignored", name, why);
    }
    buf_release(&text);
}

static int by_place(const void *a_, const void *b_)
{
    const struct kv_named_prefix *a = *(const struct kv_named_prefix *const *)a_;
    const struct kv_named_prefix *b = *(const struct kv_named_prefix *const *)b_;
    return a->place < b->place ? -1 : a->place > b->place;
}

static enum status load_all(struct kv_named *n, struct err *e)
{
    int fd = openat(n->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return err_set(e, ERR_IO, "cannot list the named prefixes: %s", strerror(errno));
    }
    for (struct dirent *t; (t = readdir(dir));) {
        if (strcmp(t->d_name, KV_FILE_TEMPORARY) == 0)
            unlinkat(n->folder, t->d_name, 0);
        else if (t->d_name[0] != '.')
            load_file(n, t->d_name);
    }
    closedir(dir);
    qsort(n->at, n->n, sizeof(*n->at), by_place);
    return OK;
}

/* ---- the table ---- */

uint64_t kv_named_share(uint64_t disk_bytes)
{
    enum { MOST = 256 << 20 };
    return disk_bytes / 8 < MOST ? disk_bytes / 8 : MOST;
}

uint64_t kv_named_prefix_memory(const struct kv_named_prefix *p)
{
    return sizeof(*p) + p->n_keys * sizeof(*p->keys) + p->n_tokens * sizeof(*p->tokens) +
           p->owner.len + p->name.len + p->salt.len + p->messages.len;
}

uint64_t kv_named_memory(struct kv_named *n)
{
    uint64_t n_bytes = 0;
    mutex_lock(&n->lock);
    for (uint32_t i = 0; i < n->n; i++)
        n_bytes += kv_named_prefix_memory(n->at[i]);
    mutex_unlock(&n->lock);
    return n_bytes;
}

uint64_t kv_named_max_bytes(const struct kv_named *n)
{
    return n->folder < 0 ? 0 : n->max_bytes;
}

uint64_t kv_named_bytes(const struct kv_named *n)
{
    return atomic_load(&n->n_bytes);
}

enum status kv_named_open(const struct kv_named_options *o, struct kv_named **out, struct err *e)
{
    struct kv_named *n = mem_zalloc(sizeof(*n));
    n->at = mem_zalloc(mem_mul(KV_NAMED_MAX, sizeof(*n->at)));
    n->folder = -1;
    n->max_bytes = o->max_bytes;
    memcpy(n->model, o->model, sizeof(n->model));
    mutex_init(&n->lock);
    enum status status = OK;
    if (*o->path)
        status = kv_folder_open(o->path, "names", &n->folder, e);
    if (status == OK && *o->path)
        status = load_all(n, e);
    if (status != OK) {
        kv_named_close(n);
        return status;
    }
    *out = n;
    return OK;
}

void kv_named_close(struct kv_named *n)
{
    if (!n)
        return;
    for (uint32_t i = 0; i < n->n; i++)
        mem_free(n->at[i]);
    for (uint32_t i = 0; i < n->n_foreign; i++)
        mem_free(n->foreign[i].keys);
    if (n->folder >= 0)
        close(n->folder);
    mutex_release(&n->lock);
    mem_free(n->foreign);
    mem_free(n->at);
    mem_free(n);
}

/* Its index, or n->n. */
static uint32_t find(const struct kv_named *n, struct str owner, struct str name)
{
    uint32_t i = 0;
    while (i < n->n && !(str_eq(n->at[i]->owner, owner) && str_eq(n->at[i]->name, name)))
        i++;
    return i;
}

/* A file that is being replaced counts until the new one exists. */
static enum status check_disk(const struct kv_named *n, const struct kv_named_prefix *p,
                              struct err *e)
{
    uint64_t n_bytes = n->n_bytes + file_bytes(n, p);
    if (n->folder < 0 || n_bytes <= n->max_bytes)
        return OK;
    return err_set(e, ERR_TOO_LARGE,
                   "named prefixes would take %llu bytes of the disk, over their share of "
                   "prefix.disk.bytes, %llu",
                   (unsigned long long)n_bytes, (unsigned long long)n->max_bytes);
}

/* Totals of an owner's names, except for one of them. */
struct taken {
    uint64_t n_names, n_tokens, n_bytes;
};

static struct taken taken_by(const struct kv_named *n, struct str owner, uint32_t but)
{
    struct taken t = {0, 0, 0};
    for (uint32_t i = 0; i < n->n; i++) {
        if (i == but || !str_eq(n->at[i]->owner, owner))
            continue;
        t.n_names++;
        t.n_tokens += n->at[i]->n_tokens;
        t.n_bytes += file_bytes(n, n->at[i]);
    }
    return t;
}

static enum status check_share(uint64_t own, uint64_t all, uint64_t most, const char *what,
                               struct err *e)
{
    if (own <= (most > all ? most - all : 0))
        return OK;
    return err_set_field(
        e, ERR_TOO_LARGE, NULL, "key_prefixes_full",
        "prefixes of this key would have %llu %s, more than stays free for others: "
        "%llu of %llu are taken",
        (unsigned long long)own, what, (unsigned long long)(all - own), (unsigned long long)most);
}

/* The same rule as base/ledger.h has for memory. i: index of the prefix that p replaces, or n->n. A prefix that
 * does not grow may always be put again. */
static enum status check_shares(const struct kv_named *n, const struct kv_named_prefix *p,
                                uint32_t i, struct err *e)
{
    const struct kv_named_prefix *old = i < n->n ? n->at[i] : NULL;
    uint64_t n_old_tokens = old ? old->n_tokens : 0, n_old_bytes = old ? file_bytes(n, old) : 0;
    uint64_t n_bytes = file_bytes(n, p);
    struct taken t = taken_by(n, p->owner, i);
    enum status status = OK;
    if (!p->shared)
        return OK;
    if (!old)
        status = check_share(t.n_names + 1, n->n + 1, KV_NAMED_MAX, "names", e);
    if (!status && p->n_tokens > n_old_tokens)
        status = check_share(t.n_tokens + p->n_tokens, n->n_tokens - n_old_tokens + p->n_tokens,
                             KV_NAMED_ALL_TOKENS, "tokens", e);
    if (!status && n_bytes > n_old_bytes)
        status = check_share(t.n_bytes + n_bytes, n->n_bytes - n_old_bytes + n_bytes, n->max_bytes,
                             "bytes of files", e);
    return status;
}

static enum status put(struct kv_named *n, const struct kv_named_prefix *given,
                       struct kv_named_prefix **old, struct err *e)
{
    struct kv_named_prefix placed = *given, *p = &placed;
    uint32_t i = find(n, p->owner, p->name);
    p->place = i < n->n ? n->at[i]->place : n->n > 0 ? n->at[n->n - 1]->place + 1 : 0;
    uint64_t n_tokens = n->n_tokens + p->n_tokens - (i < n->n ? n->at[i]->n_tokens : 0);
    if (i == KV_NAMED_MAX)
        return err_set(e, ERR_TOO_LARGE, "there are %d named prefixes already", KV_NAMED_MAX);
    if (n_tokens > KV_NAMED_ALL_TOKENS)
        return err_set(e, ERR_TOO_LARGE, "named prefixes would have %llu tokens together, over %d",
                       (unsigned long long)n_tokens, KV_NAMED_ALL_TOKENS);
    enum status status = check_shares(n, p, i, e);
    if (status == OK)
        status = check_disk(n, p, e);
    if (status == OK)
        status = save(n, p, e);
    if (status != OK)
        return status;
    n->n_bytes += file_bytes(n, p);
    if (i < n->n) {
        *old = n->at[i];
        n->n_bytes -= file_bytes(n, *old);
    } else {
        n->n++;
    }
    n->at[i] = copy_of(p);
    n->n_tokens = n_tokens;
    return OK;
}

/* Passes the removed prefix to the caller, or frees it. */
static void hand_out(struct kv_named_prefix *gone, struct kv_named_prefix **old)
{
    if (old)
        *old = gone;
    else
        mem_free(gone);
}

enum status kv_named_put(struct kv_named *n, const struct kv_named_prefix *p,
                         struct kv_named_prefix **old, struct err *e)
{
    struct kv_named_prefix *gone = NULL;
    enum status status = check(p, e);
    if (status == OK) {
        mutex_lock(&n->lock);
        status = put(n, p, &gone, e);
        mutex_unlock(&n->lock);
    }
    hand_out(gone, old);
    return status;
}

static enum status not_found(struct str name, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "no prefix is named '%.*s'",
                   (int)(name.len < KV_NAMED_NAME_BYTES ? name.len : KV_NAMED_NAME_BYTES),
                   name.ptr);
}

enum status kv_named_get(struct kv_named *n, struct str owner, struct str name,
                         struct kv_named_prefix **out, struct err *e)
{
    mutex_lock(&n->lock);
    uint32_t i = find(n, owner, name);
    *out = i < n->n ? copy_of(n->at[i]) : NULL;
    mutex_unlock(&n->lock);
    return *out ? OK : not_found(name, e);
}

static enum status take_out(struct kv_named *n, struct str owner, struct str name,
                            struct kv_named_prefix **gone, struct err *e)
{
    char file[FILE_NAME_BYTES];
    uint32_t i = find(n, owner, name);
    if (i == n->n)
        return not_found(name, e);
    file_name(file, n->model, owner, name);
    if (n->folder >= 0 && unlinkat(n->folder, file, 0) < 0 && errno != ENOENT)
        return err_set(e, ERR_IO, "cannot delete a named prefix: %s", strerror(errno));
    *gone = n->at[i];
    n->n_bytes -= file_bytes(n, *gone);
    n->n_tokens -= (*gone)->n_tokens;
    n->n--;
    memmove(n->at + i, n->at + i + 1, (n->n - i) * sizeof(*n->at));
    return OK;
}

enum status kv_named_delete(struct kv_named *n, struct str owner, struct str name,
                            struct kv_named_prefix **old, struct err *e)
{
    struct kv_named_prefix *gone = NULL;
    mutex_lock(&n->lock);
    enum status status = take_out(n, owner, name, &gone, e);
    mutex_unlock(&n->lock);
    hand_out(gone, old);
    return status;
}

void kv_named_each(struct kv_named *n, struct str owner,
                   void (*fn)(void *arg, const struct kv_named_prefix *p), void *arg)
{
    mutex_lock(&n->lock);
    for (uint32_t i = 0; i < n->n; i++) {
        if (str_eq(n->at[i]->owner, owner))
            fn(arg, n->at[i]);
    }
    mutex_unlock(&n->lock);
}

uint64_t kv_named_n_keys(const struct kv_named *n)
{
    uint64_t n_keys = 0;
    for (uint32_t i = 0; i < n->n; i++)
        n_keys += n->at[i]->n_keys;
    for (uint32_t i = 0; i < n->n_foreign; i++)
        n_keys += n->foreign[i].n_keys;
    return n_keys;
}

void kv_named_each_key(const struct kv_named *n,
                       void (*fn)(void *arg, uint64_t domain, const struct kv_key *key), void *arg)
{
    for (uint32_t i = 0; i < n->n; i++) {
        for (uint32_t k = 0; k < n->at[i]->n_keys; k++)
            fn(arg, n->at[i]->domain, &n->at[i]->keys[k]);
    }
    for (uint32_t i = 0; i < n->n_foreign; i++) {
        for (uint32_t k = 0; k < n->foreign[i].n_keys; k++)
            fn(arg, n->foreign[i].domain, &n->foreign[i].keys[k]);
    }
}
