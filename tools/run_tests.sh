#!/bin/sh
# run_tests.sh FOLDER COMMAND... - runs CTest in a build folder and prints a summary at the end.
set -u
folder=$1
shift
cd "$folder" || exit 1

# ThreadSanitizer of older compilers fails with strong address space randomization, so it is switched off for the
# tests if the system allows it.
no_randomization=
if [ -n "${TSAN_OPTIONS:-}" ] && setarch "$(uname -m)" -R true 2>/dev/null; then
    no_randomization="setarch $(uname -m) -R"
fi

start=$(date +%s)
$no_randomization "$@" --no-tests=error --output-log ctest.log
status=$?
seconds=$(($(date +%s) - start))

passed=$(grep -c ' Passed ' ctest.log)
skipped=$(grep -c '\*\*\*Skipped' ctest.log)
echo
if [ "$status" -eq 0 ]; then
    echo "tests: $passed passed, $skipped skipped, none failed, in $seconds s"
else
    echo "tests: FAILED ($passed passed, $skipped skipped); the full output is in $folder/ctest.log"
fi
exit "$status"
