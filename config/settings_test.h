/* What only tests ask of config/settings. */
#ifndef CONFIG_SETTINGS_TEST_H
#define CONFIG_SETTINGS_TEST_H

#include "config/settings.h"

/* As a config file; secrets hidden. */
void settings_dump(const struct settings *s, FILE *out, bool comments);

#endif
