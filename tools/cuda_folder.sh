#!/bin/sh
# cuda_folder.sh - prints the folder of what `tools/setup.sh cuda` fetches. setup.sh and cmake/cuda.cmake both ask it.
#
# Never in a folder for temporary files: there another user could have put it first.
set -eu

if [ -n "${GRADUS_CUDA_PACKAGES:-}" ]; then
    echo "$GRADUS_CUDA_PACKAGES"
elif [ -n "${XDG_CACHE_HOME:-}" ]; then
    echo "$XDG_CACHE_HOME/gradus/cuda"
elif [ -n "${HOME:-}" ]; then
    echo "$HOME/.cache/gradus/cuda"
else
    echo "$(cd "$(dirname "$0")/.." && pwd)/.cache/gradus/cuda"
fi
