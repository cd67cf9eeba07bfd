/* Known models and their place in the cache; see models.h. */
#include "config/models.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const struct known_model known_models[] = {
#define KNOWN_MODEL(name, file, size, sha256, licence, note)                                       \
    {name, file, size, sha256, licence, note},
#include "config/known_models.def"
#undef KNOWN_MODEL
};

const size_t n_known_models = sizeof(known_models) / sizeof(known_models[0]);

const struct known_model *known_model_find(const char *name)
{
    for (size_t i = 0; i < n_known_models; i++)
        if (strcmp(known_models[i].name, name) == 0)
            return &known_models[i];
    return NULL;
}

static const struct known_sampling known_sampling[] = {
#define KNOWN_SAMPLING(basename, temperature, top_p) {basename, temperature, top_p},
#include "config/known_sampling.def"
#undef KNOWN_SAMPLING
};

const struct known_sampling *known_sampling_find(struct str basename)
{
    for (size_t i = 0; i < sizeof(known_sampling) / sizeof(known_sampling[0]); i++)
        if (str_eq_c(basename, known_sampling[i].basename))
            return &known_sampling[i];
    return NULL;
}

enum status model_cache_folder(struct buf *path, struct err *e)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    /* The XDG specification has relative paths ignored. */
    if (cache && cache[0] == '/')
        buf_printf(path, "%s/millrace/models", cache);
    else if (home && home[0])
        buf_printf(path, "%s/.cache/millrace/models", home);
    else
        return err_set(e, ERR_NOT_FOUND, "no cache folder: neither XDG_CACHE_HOME nor HOME is set");
    return OK;
}

/* The script that fetches models: of the source tree that the program was built in, or installed with it. */
static bool find_fetcher(struct buf *path)
{
    static const char *const places[] = {"../deploy/fetch-model",
                                         "../share/millrace/deploy/fetch-model"};
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = 0;
    char *slash = strrchr(exe, '/');
    for (size_t i = 0; slash && i < sizeof(places) / sizeof(places[0]); i++) {
        char real[PATH_MAX];
        struct buf place = {0};
        buf_printf(&place, "%.*s/%s", (int)(slash - exe), exe, places[i]);
        bool found = access(place.ptr, X_OK) == 0 && realpath(place.ptr, real);
        buf_release(&place);
        if (found) {
            buf_add_c(path, real);
            return true;
        }
    }
    return false;
}

static enum status refuse_missing(const struct known_model *m, const char *path, struct err *e)
{
    struct buf script = {0};
    if (find_fetcher(&script))
        err_set_field(e, ERR_NOT_FOUND, "model", NULL,
                      "model '%s' is not in '%.200s': run %.200s %s", m->name, path, script.ptr,
                      m->name);
    else
        err_set_field(e, ERR_NOT_FOUND, "model", NULL,
                      "model '%s' is not in '%.200s': put the file %s (%llu bytes) there, or name "
                      "a GGUF file",
                      m->name, path, m->file, (unsigned long long)m->size_bytes);
    buf_release(&script);
    return ERR_NOT_FOUND;
}

/* 0, or why it is no regular file. */
static int file_error(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return errno;
    return S_ISREG(st.st_mode) ? 0 : S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
}

static enum status refuse_unknown(const char *given, int error, struct err *e)
{
    struct buf names = {0};
    for (size_t i = 0; i < n_known_models; i++)
        buf_printf(&names, "%s%s", i ? ", " : "", known_models[i].name);
    err_set_field(e, error == ENOENT ? ERR_NOT_FOUND : ERR_IO, "model", NULL,
                  "cannot open model '%.250s': %s; known names are %s", given,
                  error == EINVAL ? "not a regular file" : strerror(error), names.ptr);
    buf_release(&names);
    return error == ENOENT ? ERR_NOT_FOUND : ERR_IO;
}

enum status model_path_find(const char *path_or_name, struct buf *path, struct err *e)
{
    buf_clear(path);
    const struct known_model *known = known_model_find(path_or_name);
    if (!known) {
        int error = file_error(path_or_name);
        if (error)
            return refuse_unknown(path_or_name, error, e);
        buf_add_c(path, path_or_name);
        return OK;
    }
    enum status st = model_cache_folder(path, e);
    if (st)
        return st;
    buf_printf(path, "/%s.gguf", known->name);
    if (file_error(path->ptr) != 0)
        return refuse_missing(known, path->ptr, e);
    return OK;
}

void model_default_id(const char *path_or_name, struct buf *id)
{
    const char *slash = strrchr(path_or_name, '/');
    const char *base = slash ? slash + 1 : path_or_name;
    size_t n = strlen(base);
    bool is_gguf = n > 5 && strcmp(base + n - 5, ".gguf") == 0;
    buf_add(id, base, known_model_find(path_or_name) || !is_gguf ? n : n - 5);
}
