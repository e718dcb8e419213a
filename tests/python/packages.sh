#!/bin/sh
# packages.sh PYTHON FOLDER TEST PACKAGE... - runs a Python test with packages that it needs. They are installed into a virtual
# environment in FOLDER, once; where they cannot be had, the test is skipped with one line (exit code 77). With FULL_ONLY=1 it
# runs in make test-full only, because its packages are large.
set -u
if [ -n "${FULL_ONLY:-}" ] && [ -z "${GRADUS_TEST_FULL:-}" ]; then
    echo "skipped: it needs large packages; make test-full runs it"
    exit 77
fi
python=$1
folder=$2
test=$3
shift 3
name=$(echo "$*" | tr -c 'a-zA-Z0-9\n' '_')
home=$folder/venv_$name
if [ ! -e "$home/complete" ]; then
    rm -rf "$home"
    mkdir -p "$folder"
    if ! { "$python" -m venv "$home" && "$home/bin/python" -m pip install --quiet --disable-pip-version-check "$@" &&
        : >"$home/complete"; } >"$folder/install_$name.log" 2>&1; then
        rm -rf "$home"
        echo "skipped: the packages $* cannot be installed here"
        exit 77
    fi
fi
exec "$home/bin/python" "$test"
