#!/bin/sh
# check.sh PAGE - compiles and runs the C snippets of a documentation page, as a user would.
#
#   SOURCE BUILD WORK CC FLAGS   folders, the compiler, and the sanitizers' flags; see CMakeLists.txt
set -eu
page=$1
work=$WORK/$(echo "$page" | tr '/.' '__')
rm -rf "$work"
mkdir -p "$work"
count=$(awk -v out="$work" -f "$SOURCE/tests/docs/extract.awk" "$SOURCE/$page")
failures=0
# run_program PROGRAM FOLDER: passes if the exit status is the expected one.
run_program() {
    status=0
    (cd "$2" && "$1" >"$1.out" 2>"$1.err") || status=$?
    expected=0
    if [ -f "$1.fails" ]; then expected=1; fi
    [ "$status" -eq "$expected" ] && return 0
    cat "$1.err"
    return 1
}
for program in "$work"/*.c; do
    [ -f "$program" ] || break
    name=${program%.c}
    folder=$name.run # the program's files stay there
    mkdir -p "$folder"
    # shellcheck disable=SC2086 # flags are a list of words
    if ! $CC -std=gnu11 -Wall -Wextra -Wshadow -Werror $FLAGS -I"$SOURCE/include" -I"$BUILD/gen" \
        "$program" -L"$BUILD" -lgradus -Wl,-rpath,"$BUILD" -lm -o "$name"; then
        echo "$page: $name.c does not compile"
        failures=$((failures + 1))
    elif ! run_program "$name" "$folder"; then
        echo "$page: $name.c does not run"
        failures=$((failures + 1))
    elif [ -f "$name.expect" ] && ! diff "$name.expect" "$name.out"; then
        echo "$page: $name.c prints another output (< page, > program)"
        failures=$((failures + 1))
    fi
done
echo "$page: $count programs, $failures failures"
[ "$failures" -eq 0 ]
