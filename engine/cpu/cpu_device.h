/* The CPU's door: its row in engine/backend.c. */
#ifndef ENGINE_CPU_CPU_DEVICE_H
#define ENGINE_CPU_CPU_DEVICE_H

#include "engine/device.h"

extern const struct device cpu_device;

#endif
