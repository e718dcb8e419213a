#!/bin/sh
# packages.sh FOLDER TEST PACKAGE... - runs a Python test with Caffe (the package kendryte-caffe) and other packages, in make
# test-full only. Caffe's wheels exist for Python 3.6 to 3.9, which is looked for on the path and among the versions of pyenv;
# where there is none, the test is skipped with one line (exit code 77).
set -u
folder=$1
test=$2
shift 2
pyenv=${PYENV_ROOT:-$HOME/.pyenv}/versions
# the newest first: an old pip does not know the wheels
for python in "${GRADUS_CAFFE_PYTHON:-}" python3.9 "$pyenv"/3.9.*/bin/python3 python3.8 "$pyenv"/3.8.*/bin/python3 \
    python3.7 "$pyenv"/3.7.*/bin/python3 python3.6 "$pyenv"/3.6.*/bin/python3 python3; do
    [ -n "$python" ] || continue
    # a script of pyenv on the path may not run
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 6) <= sys.version_info[:2] <= (3, 9))' 2>/dev/null; then
        FULL_ONLY=1 exec "$(dirname "$0")/../python/packages.sh" "$python" "$folder" "$test" \
            kendryte-caffe 'numpy<1.24' 'protobuf<3.21' scikit-image pyyaml six "$@"
    fi
done
echo "skipped: Caffe needs a Python from 3.6 to 3.9"
exit 77
