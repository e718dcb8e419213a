#!/bin/sh
# cuda_folder.sh - prints the folder of what `tools/setup.sh cuda` fetches. setup.sh and cmake/cuda.cmake both ask it.
#
# Never in a folder for temporary files: there another user could have put it first. Relative paths are ignored, as the
# library does (src/codegen/native_folder.c): they would name another folder for each that a command is run in.
set -eu

is_absolute() { case $1 in /*) return 0 ;; *) return 1 ;; esac }

if is_absolute "${GRADUS_CUDA_PACKAGES:-}"; then
    echo "$GRADUS_CUDA_PACKAGES"
elif is_absolute "${XDG_CACHE_HOME:-}"; then
    echo "$XDG_CACHE_HOME/gradus/cuda"
elif is_absolute "${HOME:-}"; then
    echo "$HOME/.cache/gradus/cuda"
else
    echo "$(cd "$(dirname "$0")/.." && pwd)/.cache/gradus/cuda"
fi
