#!/bin/sh
# run_tests.sh FOLDER COMMAND... - runs CTest in a build folder and says at the end what happened.
set -u
folder=$1
shift
cd "$folder" || exit 1

# ThreadSanitizer of older compilers cannot live with much address randomization; it is switched
# off for the tests where the system lets us.
still=
if [ -n "${TSAN_OPTIONS:-}" ] && setarch "$(uname -m)" -R true 2>/dev/null; then
    still="setarch $(uname -m) -R"
fi

start=$(date +%s)
$still "$@" --no-tests=error --output-log ctest.log
status=$?
seconds=$(($(date +%s) - start))

passed=$(grep -c ' Passed ' ctest.log)
skipped=$(grep -c '\*\*\*Skipped' ctest.log)
echo
if [ "$status" -eq 0 ]; then
    echo "tests: $passed passed, $skipped skipped, none failed, in $seconds s"
else
    echo "tests: FAILED ($passed passed, $skipped skipped); the whole output is in $folder/ctest.log"
fi
exit "$status"
