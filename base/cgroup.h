/* What the cgroups of this process grant it. Internal to base/ (thread.c) and its tests, which
 * hand in a folder of made-up files as `root`; the process itself uses "". */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

#include <stdint.h>

/* CPUs' worth of quota, rounded up, at least 1: the least of the own cgroup and all its ancestors
 * (v1 and v2). 0 when nothing limits it. */
int cgroup_cpu_quota(const char *root);
/* Bytes: the least of the own cgroup and all its ancestors. UINT64_MAX when nothing limits it. */
uint64_t cgroup_memory_limit(const char *root);

#endif
