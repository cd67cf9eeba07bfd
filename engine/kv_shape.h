/* The KV layout that a model's layers require. Called at load by engine.c and by devices. */
#ifndef ENGINE_KV_SHAPE_H
#define ENGINE_KV_SHAPE_H

#include "engine/device.h"
#include "engine/model/hparams.h"
#include "kvpool/layout.h"

enum status kv_layout_of_model(const struct hparams *h, uint32_t n_slots, enum kv_dtype dtype_k,
                               enum kv_dtype dtype_v, struct kv_layout *out, struct err *e);
/* The layout of a device under kv.block_tokens, kv.dtype, kv.dtype_k and kv.dtype_v. */
enum status kv_layout_of_settings(const struct device *d, const struct hparams *h,
                                  const struct settings *s, struct kv_layout *out, struct err *e);

#endif
