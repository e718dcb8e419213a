#!/bin/sh
# check.sh PAGE - compiles and runs the snippets of a documentation page, as a user would (extract.awk says which).
#
#   SOURCE BUILD WORK CC FLAGS   folders, the compiler, and the sanitizers' flags; see CMakeLists.txt
#   PYTHON                       the interpreter for which the Python module is built; empty: there is none
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
for program in "$work"/*.py; do
    [ -f "$program" ] || break
    if [ -z "${PYTHON:-}" ] || [ -n "$FLAGS" ]; then
        echo "$page: skipped: its Python blocks, because the Python module is not built, or with sanitizers"
        break
    fi
    name=${program%.py}
    if [ -f "$name.needs" ] && ! "$PYTHON" -c "import $(cat "$name.needs")" 2>/dev/null; then
        echo "$page: skipped: $program needs $(cat "$name.needs")"
        continue
    fi
    folder=$name.run
    mkdir -p "$folder"
    printf '#!/bin/sh\nexec "%s" "%s"\n' "$PYTHON" "$program" >"$name"
    chmod +x "$name"
    if ! PYTHONPATH="$BUILD/python" run_program "$name" "$folder"; then
        echo "$page: $program does not run"
        failures=$((failures + 1))
    elif [ -f "$name.expect" ] && ! diff "$name.expect" "$name.out"; then
        echo "$page: $program prints another output (< page, > program)"
        failures=$((failures + 1))
    fi
done
for script in "$work"/*.sh; do
    [ -f "$script" ] || break
    [ -x "$BUILD/bin/gradus" ] || { echo "$page: the gradus command is not built"; continue; }
    mkdir -p "$script.run"
    if ! (cd "$script.run" && PATH="$BUILD/bin:$PATH" sh -eu "$script" >"$script.out" 2>&1); then
        cat "$script" "$script.out"
        echo "$page: $script does not run"
        failures=$((failures + 1))
    fi
done
for quote in "$work"/*.quote; do
    [ -f "$quote" ] || break
    file=$(head -n 1 "$quote")
    if ! awk 'FNR == 1 { part++ } part == 1 && FNR > 1 { want = want $0 "\n" } part == 2 { text = text $0 "\n" }
              END { exit !(want != "" && index(text, want)) }' "$quote" "$SOURCE/$file"; then
        tail -n +2 "$quote"
        echo "$page: this is not in $file"
        failures=$((failures + 1))
    fi
done
echo "$page: $count programs, $failures failures"
[ "$failures" -eq 0 ]
