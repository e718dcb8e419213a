#!/bin/sh
# setup.sh - installs the tools for building, if they are missing.
#
#     tools/setup.sh          tools for building
#     tools/setup.sh test     also the tools for the tests
#     tools/setup.sh cuda     headers of cuBLASLt and cuDNN, and NVRTC, if nvcc is there and they are missing
#     tools/setup.sh list     lists the packages and installs nothing
#
# Checks for each tool and installs only missing ones, with apt-get. If none is missing, it needs neither the network nor
# root. What CUDA's own folder lacks comes from Python packages, from the index that pip is configured for, and goes to
# $GRADUS_CUDA_PACKAGES (~/.cache/gradus/cuda; without a home folder .cache/gradus/cuda in this tree). `test` does that as well, and continues without if it fails: the build
# then leaves out what needs them.
set -eu

want=${1:-build}
cc=${CC:-}
cxx=${CXX:-}
missing=

have() { command -v "$1" >/dev/null 2>&1; }
need() { missing="$missing $*"; }

# A compiler works only if it also finds the headers of the C library.
compiles() {
    tool=$1
    language=$2
    printf '#include <stdio.h>\n#include <math.h>\nint main(void) { return 0; }\n' |
        "$tool" -x "$language" -fsyntax-only - >/dev/null 2>&1
}
# The headers of the python3 that is found, for the Python module. apt-get has those of the system's python3 only.
need_python_headers() {
    folder=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null) || folder=
    if [ -z "$folder" ] || [ ! -e "$folder/Python.h" ]; then
        case $(command -v python3) in
        '' | /usr/bin/python3 | /bin/python3) need python3-dev ;;
        *) echo "setup: $(command -v python3) has no headers, so the Python module will not be built" ;;
        esac
    fi
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

# --- CUDA ---
cuda_folder=$(sh "$(dirname "$0")/cuda_folder.sh")

# The names of CUDA's files, in its own folder, in the system's, or fetched before.
has_cuda_file() {
    for folder in "${CUDA_HOME:-/usr/local/cuda}" "$cuda_folder" /usr; do
        for sub in include lib64 lib lib/x86_64-linux-gnu lib/aarch64-linux-gnu; do
            for name in "$@"; do
                [ -e "$folder/$sub/$name" ] && return 0
            done
        done
    done
    return 1
}
fetch_cuda() {
    nvcc=
    for candidate in nvcc "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; do
        have "$candidate" && nvcc=$candidate && break
    done
    if [ -z "$nvcc" ]; then
        echo "setup: no nvcc, so there is no CUDA backend and nothing to fetch for it"
        return 0
    fi
    version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
    version=${version:-13.0}
    major=${version%%.*}
    suffix= # until CUDA 12 the names of all packages had one
    [ "$major" -ge 13 ] || suffix=-cu$major
    packages=
    has_cuda_file cublasLt.h || packages="$packages nvidia-cublas$suffix~=$major.0"
    has_cuda_file cudnn.h || packages="$packages nvidia-cudnn-cu$major~=9.0"
    # the compiler's own version, since a newer NVRTC accepts more
    has_cuda_file "libnvrtc.so.$major" || packages="$packages nvidia-cuda-nvrtc$suffix~=$version.0"
    if [ -z "$packages" ]; then
        echo "setup: the headers of cuBLASLt and cuDNN, and NVRTC, are there"
        return 0
    fi
    echo "setup: missing for CUDA:$packages"
    if ! python3 -m pip --version >/dev/null 2>&1; then
        echo "setup: python3 has no pip, so they are not fetched"
        return 1
    fi
    echo "setup: fetching headers and NVRTC of them from the index of pip to $cuda_folder"
    # shellcheck disable=SC2086 # a list of words
    python3 "$(dirname "$0")/fetch_cuda.py" "$cuda_folder" $packages
}

case $want in
build | test) ;;
cuda)
    fetch_cuda
    exit
    ;;
list)
    echo "to build:  gcc (or clang) libc6-dev make cmake ninja-build"
    echo "to test:   g++ (or clang++) pkg-config binutils clang locales libjpeg-dev libpng-dev liblmdb-dev clang-format-14 python3-dev"
    echo "CUDA:      nvcc; nvidia-cublas nvidia-cudnn-cu13 nvidia-cuda-nvrtc (Python packages, for headers and NVRTC)"
    echo "optional:  libjpeg-dev libpng-dev (JPEG and PNG images), liblmdb-dev (LMDB databases), ccache (faster rebuilds)"
    exit 0
    ;;
*)
    echo "usage: tools/setup.sh [build|test|cuda|list]" >&2
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
    # The tests create a locale with a decimal comma, and the unit tests also run with clang.
    { have localedef && [ -e /usr/share/i18n/locales/de_DE ]; } || need locales
    any_compiles c clang || need clang
    has_header jpeglib.h || need libjpeg-dev
    has_header png.h || need libpng-dev
    has_header lmdb.h || need liblmdb-dev
    need_python_headers
    have clang-format-14 || need clang-format-14 # tools/check_format.sh needs this version
fi

if [ -z "$missing" ]; then
    echo "setup: all tools are installed"
else
    echo "setup: missing packages:$missing"
    if ! have apt-get; then
        echo "setup: this system has no apt-get; please install the equivalent packages" >&2
        exit 1
    fi
    sudo=
    if [ "$(id -u)" -ne 0 ]; then
        if ! have sudo; then
            echo "setup: not root, and sudo is missing. As root, run: apt-get install$missing" >&2
            exit 1
        fi
        sudo=sudo
    fi
    echo "setup: installing them with ${sudo:+sudo }apt-get"
    # outdated package lists may be good enough: the install decides
    $sudo apt-get update -q || echo "setup: apt-get update failed; trying with the existing package lists" >&2
    # shellcheck disable=SC2086 # a list of words
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
fi

if ! have cmake; then
    echo "setup: cmake is still missing" >&2
    exit 1
fi
version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
major=${version% *}
minor=${version#* }
if [ "$major" -lt 3 ] || { [ "$major" -eq 3 ] && [ "$minor" -lt 20 ]; }; then
    echo "setup: cmake is $major.$minor; at least 3.20 is needed (https://cmake.org/download)" >&2
    exit 1
fi
if [ "$want" = test ]; then
    fetch_cuda || echo "setup: continuing; the summary of the build says which parts of CUDA are off"
fi
