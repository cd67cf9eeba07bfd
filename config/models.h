/* From what --model says to a file: a path, or the name of a known model in the user's cache.
 * Thread: any. */
#ifndef CONFIG_MODELS_H
#define CONFIG_MODELS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

struct known_model {
    const char *name;
    const char *file; /* as its publisher names it */
    uint64_t size_bytes;
    const char *sha256; /* hex */
    const char *licence;
    const char *note;
};

extern const struct known_model known_models[];
extern const size_t n_known_models;

struct known_sampling {
    const char *basename;
    float temperature, top_p;
};
/* What its makers advise for a model by its general.basename; NULL when unknown. */
const struct known_sampling *known_sampling_find(struct str basename);

/* NULL when unknown. */
const struct known_model *known_model_find(const char *name);
/* Folder that deploy/fetch-model fills: $XDG_CACHE_HOME/millrace/models, else
 * ~/.cache/millrace/models. */
enum status model_cache_folder(struct buf *path, struct err *e);
/* A known name gives its file in the cache, ERR_NOT_FOUND with the command that fetches it when it
 * is not there; anything else must be a file. */
enum status model_path_find(const char *path_or_name, struct buf *path, struct err *e);
/* Id of the model for /v1/models: the known name, or the file's stem. */
void model_default_id(const char *path_or_name, struct buf *id);

#endif
