#!/usr/bin/env bash
# Shell functions of deploy/* and tests/run: messages, Debian packages, the cache folder. Sourced by bash.

say() { printf '==> %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Where models, virtual environments and downloads live: the folder that `millrace --model NAME` searches.
cache_dir() { printf '%s/millrace' "${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}"; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "this needs root: run as root, or install sudo ($*)"
    fi
}

missing_packages() {
    local package
    for package in "$@"; do
        # "install ok installed"; a removed package that left its configuration says "deinstall"
        dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q ' installed$' || echo "$package"
    done
}

# need_packages NAME...: installs those that are missing, and says which.
need_packages() {
    local missing
    command -v apt-get >/dev/null || die "apt-get not found: this script knows Debian 12; elsewhere install $* by hand"
    mapfile -t missing < <(missing_packages "$@")
    if [ "${#missing[@]}" = 0 ]; then
        say "packages: all of $# are installed"
        return
    fi
    say "packages: installing ${missing[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
        install --no-install-recommends "${missing[@]}"
}

# What a release build needs; what runs it is pulled in by these.
# shellcheck disable=SC2034
build_packages=(ca-certificates cmake gcc libc6-dev make pkg-config
    libmicrohttpd-dev libcjson-dev libpcre2-dev libutf8proc-dev)
