#!/bin/sh
# setup.sh - sees to it that the tools for building are there.
#
#     tools/setup.sh          what building needs
#     tools/setup.sh test     and what the tests need beyond that
#     tools/setup.sh list     names the packages and installs nothing
#
# Looks for each tool and installs, with apt-get, only what is missing. When nothing is missing it
# needs neither the network nor root.
set -eu

want=${1:-build}
cc=${CC:-}
cxx=${CXX:-}
missing=

have() { command -v "$1" >/dev/null 2>&1; }
need() { missing="$missing $*"; }

# A compiler counts when it finds the C library's headers, too.
compiles() {
    tool=$1
    language=$2
    printf '#include <stdio.h>\n#include <math.h>\nint main(void) { return 0; }\n' |
        "$tool" -x "$language" -fsyntax-only - >/dev/null 2>&1
}
has_header() {
    for candidate in "$cc" cc gcc clang; do
        if [ -n "$candidate" ] && have "$candidate"; then
            printf '#include <stdio.h>\n#include <%s>\n' "$1" | "$candidate" -x c -fsyntax-only - >/dev/null 2>&1 &&
                return 0
        fi
    done
    return 1
}
any_compiles() {
    language=$1
    shift
    for candidate in "$@"; do
        if [ -n "$candidate" ] && have "$candidate" && compiles "$candidate" "$language"; then
            return 0
        fi
    done
    return 1
}

case $want in
build | test) ;;
list)
    echo "to build:  gcc (or clang) libc6-dev make cmake ninja-build"
    echo "to test:   g++ (or clang++) pkg-config binutils clang locales libjpeg-dev libpng-dev clang-format-14"
    echo "optional:  libjpeg-dev libpng-dev (JPEG and PNG pictures), ccache (faster rebuilds)"
    exit 0
    ;;
*)
    echo "usage: tools/setup.sh [build|test|list]" >&2
    exit 2
    ;;
esac

any_compiles c "$cc" cc gcc clang || need gcc libc6-dev
have make || need make
have cmake || need cmake
have ninja || need ninja-build
if [ "$want" = test ]; then
    any_compiles c++ "$cxx" c++ g++ clang++ || need g++
    have pkg-config || need pkg-config
    have nm || need binutils
    # The tests make a locale with a decimal comma, and the unit tests are run with clang, too.
    { have localedef && [ -e /usr/share/i18n/locales/de_DE ]; } || need locales
    any_compiles c clang || need clang
    has_header jpeglib.h || need libjpeg-dev
    has_header png.h || need libpng-dev
    have clang-format-14 || need clang-format-14 # tools/check_format.sh wants this version
fi

if [ -z "$missing" ]; then
    echo "setup: all tools are here; nothing to install"
else
    echo "setup: missing packages:$missing"
    if ! have apt-get; then
        echo "setup: there is no apt-get here; please install their like with this system's own tool" >&2
        exit 1
    fi
    sudo=
    if [ "$(id -u)" -ne 0 ]; then
        if ! have sudo; then
            echo "setup: not root, and there is no sudo. As root: apt-get install$missing" >&2
            exit 1
        fi
        sudo=sudo
    fi
    echo "setup: installing them with ${sudo:+sudo }apt-get"
    # an old list is no reason to fail: the install says whether the packages can be had
    $sudo apt-get update -q || echo "setup: apt-get update failed; trying with the lists that are here" >&2
    # shellcheck disable=SC2086 # a list of words
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
fi

if ! have cmake; then
    echo "setup: cmake is still not there" >&2
    exit 1
fi
version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
major=${version% *}
minor=${version#* }
if [ "$major" -lt 3 ] || { [ "$major" -eq 3 ] && [ "$minor" -lt 20 ]; }; then
    echo "setup: cmake is $major.$minor; at least 3.20 is needed (https://cmake.org/download)" >&2
    exit 1
fi
