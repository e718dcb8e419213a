#!/bin/sh
# gpu_check.sh [PART...] - checks the CUDA backend on a machine with a GPU; it needs no network.
#
#   build   builds the library, the CUDA backend and the tests in build-gpu/, and prints what is off
#   test    runs the generated suites on the GPU
#
# Without arguments all parts run. Each part ends with a table. Variables: JOBS, the number of processes; SUITES, the
# suites of `test`; KIND, the kind of device (cuda).
set -eu
cd "$(dirname "$0")/.."
build=build-gpu
jobs=${JOBS:-$(nproc)}
kind=${KIND:-cuda}

part_build() {
    generator=
    command -v ninja >/dev/null 2>&1 && generator="-G Ninja"
    cmake -S . -B $build $generator -DGRADUS_EXAMPLES=OFF -DGRADUS_CUDA=AUTO -DGRADUS_CUDA_ARCHITECTURES="${ARCHITECTURES:-90}" >$build.log 2>&1 ||
        { cat $build.log; return 1; }
    grep -E "devices|images" $build.log
    targets="gradus_backend_test test_ops gradus_tool"
    [ "$kind" = cuda ] && targets="$targets gradus_backend_cuda"
    for target in $targets; do
        cmake --build $build -j"$jobs" --target "$target" >>$build.log 2>&1 || { tail -40 $build.log; return 1; }
    done
    echo "build: done"
}

# One process for each suite and family; a line of results for each suite.
part_test() {
    suites=${SUITES:-"golden gradcheck strides inplace modes autocast"}
    families=$(ls tests/cases/*.txt | sed 's#.*/##; s#\.txt##')
    mkdir -p $build/results
    rm -f $build/results/*
    for suite in $suites; do
        for family in $families; do echo "$suite $family"; done
    done | xargs -P "$jobs" -L 1 sh -c "timeout 500 $build/tests/test_ops --device $kind --suite \$0 --family \$1 \
        >$build/results/\$0.\$1 2>&1 || echo \"ended with status \$?\" >>$build/results/\$0.\$1"
    printf '%-12s %8s %8s  %s\n' suite passed failed "families with failures"
    bad=0
    for suite in $suites; do
        passed=0 failed=0 names=
        for family in $families; do
            file=$build/results/$suite.$family
            line=$(grep -E "^$suite: [0-9]+ passed" "$file" || echo "$suite: 0 passed, 1 failed")
            p=$(echo "$line" | sed 's/.*: \([0-9]*\) passed.*/\1/')
            f=$(echo "$line" | sed 's/.*, \([0-9]*\) failed.*/\1/')
            passed=$((passed + p)) failed=$((failed + f))
            [ "$f" = 0 ] || names="$names $family:$f"
        done
        [ $failed = 0 ] || bad=1
        printf '%-12s %8d %8d %s\n' "$suite" $passed $failed "$names"
    done
    return $bad
}

status=0
for part in ${*:-build test}; do
    case $part in
    build | test) part_$part || status=1 ;;
    *) echo "there is no part '$part'; there are build and test" >&2; exit 2 ;;
    esac
done
exit $status
