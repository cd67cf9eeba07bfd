/* CPU and memory limits set by this process's cgroups. Internal to base/ (thread.c) and its tests,
 * which pass a folder of fake files as `root`; the process itself passes "". */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

#include <stdint.h>

/* The quota in CPUs, rounded up, at least 1: the minimum over our cgroup and all its ancestors
 * (v1 and v2). 0 when there is no limit. */
int cgroup_cpu_quota(const char *root);
/* In bytes: the minimum over our cgroup and all its ancestors. UINT64_MAX when there is no limit. */
uint64_t cgroup_memory_limit(const char *root);

#endif
