#!/bin/sh
# check_format.sh [--fix] - fails if a source file is not formatted according to .clang-format, or formats all.
#
# Versions of clang-format differ in details. If the version that tools/setup.sh installs is missing, or if the tree is
# not a git checkout, the script checks nothing and exits with status 77, which the tests report as skipped.
set -eu

version=14
cd "$(dirname "$0")/.."
tool=
for candidate in "clang-format-$version" clang-format; do
    if "$candidate" --version 2>/dev/null | grep -q "version $version\."; then
        tool=$candidate
        break
    fi
done
if [ -z "$tool" ]; then
    echo "skipped: clang-format $version is not installed"
    exit 77
fi
if ! files=$(git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' 2>/dev/null) || [ -z "$files" ]; then
    echo "skipped: this is not a git checkout"
    exit 77
fi
if [ "${1:-}" = --fix ]; then
    echo "$files" | xargs "$tool" -i
    exit 0
fi
# shellcheck disable=SC2086
if ! $tool --dry-run -Werror $files 2>&1 | head -20 | grep . >&2; then
    exit 0
fi
echo "run 'make format' and commit the result" >&2
exit 1
