/* A device holds a model's weights and KV and computes its steps. The rest of the engine knows devices
 * only through this table row; engine/backend.c lists them.
 *
 * A new device is a folder beside engine/cpu with a door header that declares its row, plus one line in
 * engine/backend.c. It implements engine/backend.h (steps) and kvpool/store.h (bytes of KV blocks), and describes
 * itself in struct device_info (backend.h): nothing outside its folder names it.
 * Thread: load and plan run on the thread that opens the model, the rest as stated in engine/backend.h. */
#ifndef ENGINE_DEVICE_H
#define ENGINE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/backend.h"
#include "engine/model/hparams.h"
#include "engine/model/weights.h"
#include "kvpool/layout.h"

struct settings;

/* One model on a device: the first member of the device's own struct. */
struct device_model {
    const struct device *device;
    struct device_info info;
};

typedef void device_fn(void *ctx, uint32_t item, uint32_t worker);

struct device {
    const char *name;
    /* Finds out whether this machine can run the device under these settings, and describes it. Errors name what is
     * missing. */
    enum status (*probe)(const struct settings *s, struct device_info *out, struct err *e);
    /* Converts weights to the form that the device computes with. g, h and w are not read afterwards. */
    enum status (*load)(const struct settings *s, const struct gguf *g, const struct hparams *h,
                        const struct weights *w, struct device_model **out, struct err *e);
    /* The result of load for its sizes only: no weight is read, and it cannot compute. */
    enum status (*plan)(const struct settings *s, const struct hparams *h, const struct weights *w,
                        struct device_model **out, struct err *e);
    void (*unload)(struct device_model *m);
    /* Calls fn for items 0..n-1 on the host, in any order, on as many threads as the device has. */
    void (*each)(struct device_model *m, device_fn *fn, void *ctx, uint32_t n);
    /* The device's layout of blocks: sizes, and in out->order the name of its order of elements, which must change
     * whenever the order does. */
    enum status (*kv_layout)(const struct hparams *h, uint32_t n_slots, enum kv_dtype dtype_k,
                             enum kv_dtype dtype_v, struct kv_layout *out, struct err *e);
    /* Memory for blocks: n_frames[g] >= 1 and n_host[g] (NULL: none) per group. */
    enum status (*kv_new)(struct device_model *m, const struct kv_layout *layout,
                          const uint32_t *n_frames, const uint32_t *n_host, struct kv_store **out,
                          struct err *e);
    /* fine: activations are rounded less than the settings ask for, for measurements. m outlives the backend. */
    enum status (*backend_new)(struct device_model *m, bool fine, struct kv_store *kv,
                               const struct kv_layout *layout, struct backend_limits limits,
                               struct backend **out, struct err *e);
};

/* The first device in the table that this machine can run under the settings. *info: filled by its probe. */
enum status device_pick(const struct settings *s, const struct device **out,
                        struct device_info *info, struct err *e);

#endif
