#!/bin/sh
# run_tests.sh FOLDER COMMAND... - runs CTest in a build folder and prints a summary at the end, in the quick form with
# the tests that it leaves to `make test-all`.
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

# The names of a label's tests, of those that the command selects with -R.
names_of() {
    label=$1
    shift
    pattern=.
    while [ $# -gt 1 ]; do
        [ "$1" != -R ] || pattern=$2
        shift
    done
    ctest -N -L "^$label\$" -R "$pattern" | sed -n 's/^ *Test *#[0-9]*: //p'
}
# The tests of a suite, one for each family, are one name: ops.modes.*
suites() { sed 's/^\([^.]*\.[^.]*\)\..*/\1.*/' | sort -u; }
as_list() { tr '\n' ' ' | fold -s -w 110 | sed 's/^/  /; s/ *$//'; }
say_what_is_left() {
    echo "left to 'make test-all': these tests,"
    names_of long "$@" | as_list
    echo
    echo "and more cases of"
    names_of sampled "$@" | suites | as_list
    echo
}

passed=$(grep -c ' Passed ' ctest.log)
skipped=$(grep -c '\*\*\*Skipped' ctest.log)
echo
[ -z "${GRADUS_TEST_QUICK:-}" ] || say_what_is_left "$@"
if [ "$status" -eq 0 ]; then
    echo "tests: $passed passed, $skipped skipped, none failed, in $seconds s"
else
    echo "tests: FAILED ($passed passed, $skipped skipped); the full output is in $folder/ctest.log"
fi
exit "$status"
