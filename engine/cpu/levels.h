/* The table of instruction levels, and the choice of one at start. Thread: any. */
#ifndef ENGINE_CPU_LEVELS_H
#define ENGINE_CPU_LEVELS_H

#include "base/status.h"
#include "engine/cpu/kernels.h"

/* Level i of those that this machine supports, best last; NULL after the last. Level 0 is "c". */
const struct kernels *levels_at(uint32_t i);
/* Their names, for instance "c avx2". */
const char *levels_names(void);
/* The level for a cpu.isa setting; ERR_UNSUPPORTED names the level that the machine lacks. */
enum status levels_choose(int isa_setting, const struct kernels **out, struct err *e);

#endif
