/* Finds the cgroup folders of this process and reads their limits; see cgroup.h.
 *
 * /proc/self/cgroup gives the process's position in each hierarchy; /proc/self/mountinfo gives where
 * a hierarchy is mounted and which part of it. Inside a container the two may disagree (the path is
 * the host's, but only the container's part is mounted): then the mount's root is our cgroup. */
#include "base/cgroup.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"

enum { MAX_FILE_BYTES = 1 << 20, MAX_PATH = 4096 };

/* For "no limit" v1 reports the largest page multiple that fits in int64: any value above this means none. */
#define NO_LIMIT_BYTES (1ull << 60)

struct hierarchy {
    bool v2;
    char mount[MAX_PATH]; /* folder where it is mounted */
    char path[MAX_PATH]; /* our cgroup's path below the mount, "" for its root */
};

static bool read_file(const char *root, const char *path, struct buf *out)
{
    char full[2 * MAX_PATH];
    buf_clear(out);
    if (snprintf(full, sizeof(full), "%s%s", root, path) >= (int)sizeof(full))
        return false;
    int fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = 1;
    while (n > 0 && out->len < MAX_FILE_BYTES) {
        buf_reserve(out, 4096);
        n = read(fd, out->ptr + out->len, 4096);
        if (n > 0)
            out->len += (size_t)n;
    }
    close(fd);
    buf_add(out, "", 0);
    return n >= 0;
}

/* True when the comma-separated list names the controller. */
static bool list_has(const char *list, size_t n, const char *name)
{
    size_t n_name = strlen(name);
    for (size_t i = 0; i + n_name <= n; i++) {
        bool starts = i == 0 || list[i - 1] == ',';
        bool ends = i + n_name == n || list[i + n_name] == ',';
        if (starts && ends && memcmp(list + i, name, n_name) == 0)
            return true;
    }
    return false;
}

/* /proc/self/cgroup: "4:cpu,cpuacct:/a/b" (v1), "0::/a/b" (v2). */
static bool own_path(const char *text, const char *controller, bool v2, char out[MAX_PATH])
{
    for (const char *line = text; *line;) {
        const char *end = strchrnul(line, '\n');
        const char *list = memchr(line, ':', (size_t)(end - line));
        const char *path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
        if (path) {
            size_t n_list = (size_t)(path - list - 1);
            bool ours = v2 ? n_list == 0 : list_has(list + 1, n_list, controller);
            size_t n = (size_t)(end - path - 1);
            if (ours && n < MAX_PATH) {
                memcpy(out, path + 1, n);
                out[n] = 0;
                return true;
            }
        }
        line = *end ? end + 1 : end;
    }
    return false;
}

/* Decodes mountinfo's \ooo escapes. */
static void unescape_octal(char *s)
{
    char *to = s;
    while (*s) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
            s[3] >= '0' && s[3] <= '7') {
            *to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 4;
        } else {
            *to++ = *s++;
        }
    }
    *to = 0;
}

/* The part of `path` below the mounted `top`; "" (the mount's root) when it is elsewhere. */
static const char *below(const char *path, const char *top)
{
    size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (strncmp(path, top, n) != 0 || (path[n] != '/' && path[n] != 0) || strstr(path, "/.."))
        return "";
    return strcmp(path + n, "/") == 0 ? "" : path + n;
}

/* One line of mountinfo: "id parent dev top mount options ... - type source super-options". */
static bool mount_matches(char *line, const char *controller, bool v2, char **top, char **mount)
{
    char *dash = strstr(line, " - ");
    if (!dash)
        return false;
    char type[16] = "", super[512] = "";
    if (sscanf(dash, " - %15s %*s %511s", type, super) < 1)
        return false;
    if (strcmp(type, v2 ? "cgroup2" : "cgroup") != 0)
        return false;
    if (!v2 && !list_has(super, strlen(super), controller))
        return false;
    char *save = NULL;
    char *field = strtok_r(line, " ", &save);
    for (int i = 0; i < 3 && field; i++)
        field = strtok_r(NULL, " ", &save);
    *top = field;
    *mount = field ? strtok_r(NULL, " ", &save) : NULL;
    if (!*mount)
        return false;
    unescape_octal(*top);
    unescape_octal(*mount);
    return true;
}

static bool find_hierarchy(const char *root, const char *controller, bool v2, struct hierarchy *h)
{
    struct buf text = {0};
    char own[MAX_PATH];
    bool found = read_file(root, "/proc/self/cgroup", &text) &&
                 own_path(text.ptr, controller, v2, own) &&
                 read_file(root, "/proc/self/mountinfo", &text);
    bool mounted = false;
    char *save = NULL;
    char *line = found ? strtok_r(text.ptr, "\n", &save) : NULL;
    for (; line && !mounted; line = strtok_r(NULL, "\n", &save)) {
        char *top, *mount;
        if (!mount_matches(line, controller, v2, &top, &mount))
            continue;
        h->v2 = v2;
        snprintf(h->mount, sizeof(h->mount), "%s", mount);
        snprintf(h->path, sizeof(h->path), "%s", below(own, top));
        mounted = true;
    }
    buf_release(&text);
    return mounted;
}

/* Calls visit for our cgroup and each ancestor up to the mount's root. */
static void for_each_level(const char *root, struct hierarchy *h,
                           void (*visit)(const char *root, const char *folder, bool v2, void *arg),
                           void *arg)
{
    for (;;) {
        char folder[2 * MAX_PATH];
        snprintf(folder, sizeof(folder), "%s%s", h->mount, h->path);
        visit(root, folder, h->v2, arg);
        char *slash = strrchr(h->path, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

static bool read_in(const char *root, const char *folder, const char *name, struct buf *text)
{
    char path[2 * MAX_PATH + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return read_file(root, path, text);
}

static void visit_cpu(const char *root, const char *folder, bool v2, void *arg)
{
    int *least = arg;
    long long quota = -1, period = 0;
    struct buf text = {0};
    if (v2) {
        if (!read_in(root, folder, "cpu.max", &text) ||
            sscanf(text.ptr, "%lld %lld", &quota, &period) != 2)
            quota = -1;
    } else if (read_in(root, folder, "cpu.cfs_quota_us", &text)) {
        quota = strtoll(text.ptr, NULL, 10);
        if (read_in(root, folder, "cpu.cfs_period_us", &text))
            period = strtoll(text.ptr, NULL, 10);
    }
    buf_release(&text);
    if (quota <= 0 || period <= 0)
        return;
    long long n = quota / period + (quota % period != 0);
    if (n < 1 << 20 && (*least == 0 || n < *least))
        *least = (int)n;
}

static void visit_memory(const char *root, const char *folder, bool v2, void *arg)
{
    uint64_t *least = arg;
    struct buf text = {0};
    const char *name = v2 ? "memory.max" : "memory.limit_in_bytes";
    if (read_in(root, folder, name, &text) && text.len && text.ptr[0] >= '0' &&
        text.ptr[0] <= '9') {
        uint64_t limit = strtoull(text.ptr, NULL, 10);
        if (limit < NO_LIMIT_BYTES && limit < *least)
            *least = limit;
    }
    buf_release(&text);
}

int cgroup_cpu_quota(const char *root)
{
    int least = 0;
    struct hierarchy h;
    for (int v2 = 0; v2 <= 1; v2++)
        if (find_hierarchy(root, "cpu", v2, &h))
            for_each_level(root, &h, visit_cpu, &least);
    return least;
}

uint64_t cgroup_memory_limit(const char *root)
{
    uint64_t least = UINT64_MAX;
    struct hierarchy h;
    for (int v2 = 0; v2 <= 1; v2++)
        if (find_hierarchy(root, "memory", v2, &h))
            for_each_level(root, &h, visit_memory, &least);
    return least;
}
