/* The table of devices: the only file of the engine that names one. */
#include "engine/cpu/cpu_device.h"
#include "engine/device.h"

/* Best first: the first device that this machine has is used. */
static const struct device *const devices[] = {&cpu_device};

enum status device_pick(const struct settings *s, const struct device **out,
                        struct device_info *info, struct err *e)
{
    enum status st = ERR_UNSUPPORTED;
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        *info = (struct device_info){0};
        st = devices[i]->probe(s, info, e);
        if (st == OK) {
            *out = devices[i];
            return OK;
        }
    }
    return st;
}
