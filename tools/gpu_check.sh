#!/bin/sh
# gpu_check.sh [PART...] [--data FOLDER] - checks the CUDA backend on a machine with a GPU. It needs no network.
#
#   build      builds the library, the CUDA backend, tests, benchmarks, examples and the Python package in build-gpu/; prints
#              what is off
#   test       runs the generated suites, the tests of the device and of the Python package, a training run that is killed,
#              and the examples and the demo, on the GPU; the results of the examples are printed beside those of the CPU
#   sanitize   runs a sample of the suites under compute-sanitizer, memcheck and racecheck
#   bench      compares training steps with those of PyTorch (bench/versus_pytorch_cuda.py)
#   train      trains large nets twice and compares all bits (if there is PyTorch); trains on the data of FOLDER, and measures
#              how busy the loader keeps the GPU: the files of MNIST in FOLDER or FOLDER/mnist, and a text, one of
#              tinyshakespeare.txt, shakespeare.txt and input.txt in FOLDER or FOLDER/tinyshakespeare
#
# Without parts: build, test, sanitize and bench, and train with --data. Each part ends with a table, in less than nine
# minutes, and test and bench together in less than twelve; what has not finished by then is ended and counts as failed. A
# part that cannot run says why, and is no failure.
#
# Variables: JOBS, processes at a time (default: the number of cores); SUITES, those of `test`; NETS, those of `bench`;
# PEERS, options of versus_pytorch_cuda.py, for example --profile or --peers torch,graph (torch.compile takes a minute for a large net); TWICE, the nets that `train` trains twice;
# ARCHITECTURES, for which kernels are compiled (default: that of the GPU); KIND, the kind of device (cuda); SAMPLE, one
# case in SAMPLE (default: all) of `test`; BUILD, the folder of the build; CMAKE_FLAGS, more arguments of its configuration.
set -u
cd "$(dirname "$0")/.."
build=${BUILD:-build-gpu}
jobs=${JOBS:-$(nproc)}
kind=${KIND:-cuda}
results=$build/results
data=
parts=
while [ $# -gt 0 ]; do
    case $1 in
    --data)
        [ $# -gt 1 ] || { echo "--data needs a folder" >&2; exit 2; }
        data=$2
        shift
        ;;
    build | test | sanitize | bench | train) parts="$parts $1" ;;
    *) echo "there is no part '$1'; there are build, test, sanitize, bench and train" >&2; exit 2 ;;
    esac
    shift
done
[ -n "$parts" ] || parts="build test sanitize bench${data:+ train}"

seconds() { date +%s; }
# begin_part NAME SECONDS
begin_part() {
    began=$(seconds)
    deadline=$((began + $2))
    mkdir -p $results
    echo "--- $1 ---"
}
# The seconds that the part still has, at least 1.
left() {
    rest=$((deadline - $(seconds)))
    [ $rest -gt 0 ] || rest=1
    echo $rest
}
end_part() { echo "$1: $2, in $(($(seconds) - began)) s"; }

needs_program() {
    [ -x "$1" ] && return 0
    echo "off: $1 is not built (run: tools/gpu_check.sh build)"
    return 1
}
find_sanitizer() {
    for candidate in compute-sanitizer "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" \
        "${CUDA_HOME:-/usr/local/cuda}/compute-sanitizer/compute-sanitizer"; do
        command -v "$candidate" 2>/dev/null && return 0
    done
    return 1
}
has_torch() { python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; }
families() { ls -S tests/cases/*.txt | sed 's#.*/##; s#\.txt##'; } # the largest first

# --- build ---

part_build() {
    begin_part build 530
    architectures=${ARCHITECTURES:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u | paste -sd ';')}
    generator=
    command -v ninja >/dev/null 2>&1 && generator="-G Ninja"
    log=$build/build.log
    mkdir -p $build
    # shellcheck disable=SC2086
    cmake -S . -B $build $generator -DGRADUS_CUDA=AUTO -DGRADUS_CUDA_ARCHITECTURES="${architectures:-90}" ${CMAKE_FLAGS:-} >$log 2>&1 ||
        { cat $log; end_part build failed; return 1; }
    status=0
    rows=
    # the names of targets that exist, with what each is for
    for target in gradus_backend_$kind gradus_backend_test test_ops test_kill unit_tests gradus_tool bench_device bench_feed examples \
        gradus_python gradus_python_files; do
        if ! cmake --build $build --target help 2>/dev/null | grep -qE "(^|^\.\.\. |/CMakeFiles/)$target\b"; then
            rows="$rows$target off\n"
        elif timeout "$(left)" cmake --build $build -j"$jobs" --target "$target" >>$log 2>&1; then
            rows="$rows$target built\n"
        else
            rows="$rows$target FAILED\n"
            status=1
        fi
    done
    [ $status = 0 ] || tail -40 $log
    echo
    grep -E '^--   (devices|cuBLASLt|cuDNN|NVRTC|JPEG|PNG|Python)' $log | sed 's/^--   //'
    find_sanitizer >/dev/null && echo "compute-sanitizer on" || echo "compute-sanitizer off (it was not found, so there is no part sanitize)"
    has_torch && echo "PyTorch           on" || echo "PyTorch           off (python3 has none with CUDA, so there is no part bench)"
    # shellcheck disable=SC2059
    printf "$rows" | awk '{ printf "%-20s %s\n", $1, $2 }'
    [ $status = 0 ] && end_part build done || end_part build FAILED
    return $status
}

# --- test ---

# run_families COMMAND - reads lines "suite family"; the output of each is in results/suite.family. $0 and $1 of the
# command are suite and family. All end at the deadline of the part.
run_families() {
    # shellcheck disable=SC2016
    xargs -P "$jobs" -L 1 sh -c 'rest=$(('"$deadline"' - $(date +%s))); [ $rest -gt 0 ] || rest=1; timeout $rest '"$1"' \
        >'"$results"'/$0.$1 2>&1 || echo "ended with status $?" >>'"$results"'/$0.$1'
}

# A line for each suite: passed, failed, and the families with failures.
print_suites() {
    bad=0
    printf '%-22s %8s %8s  %s\n' suite passed failed "families with failures"
    for suite in $1; do
        passed=0 failed=0 names=
        for family in $(families); do
            file=$results/$suite.$family
            [ -f "$file" ] || continue
            p=$(sed -n 's/^[a-z]*: \([0-9]*\) passed.*/\1/p' "$file" | tail -1)
            f=$(sed -n 's/^[a-z]*: [0-9]* passed, \([0-9]*\) failed.*/\1/p' "$file" | tail -1)
            if grep -q "ended with status" "$file" && [ "${f:-0}" = 0 ]; then f=1; fi # a crash, or out of time
            passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1}))
            [ "${f:-1}" = 0 ] || names="$names $family:${f:-1}"
        done
        [ $failed = 0 ] || bad=1
        printf '%-22s %8d %8d %s\n' "$suite" $passed $failed "$names"
    done
    return $bad
}

# Runs each example, and the demo, on the CPU and on the device. A row: whether both learned, and the last result of each.
run_examples() {
    root=$PWD # the commands below run in the folders of their results
    folder=$root/$build/examples
    mkdir -p $results/examples
    for program in "$folder"/*; do
        name=$(basename "$program")
        case $name in *_onnx | run_graph | mnist | gpt | char_rnn | CMakeFiles | *.*) continue ;; esac
        [ -f "$program" ] && [ -x "$program" ] && echo "$name $program"
    done >$results/examples.list
    for name in gpt char_rnn; do echo "$name $folder/$name $root/examples/$name.c 80"; done >>$results/examples.list
    echo "mnist $folder/mnist" >>$results/examples.list
    echo "demo $root/$build/bin/gradus demo" >>$results/examples.list
    for device in cpu "$kind"; do sed "s/\$/ --device $device/; s/^/$device /" $results/examples.list; done |
        (cd $results/examples && xargs -P "$jobs" -L 1 sh -c 'device=$0 name=$1; shift; mkdir -p $device.$name; cd $device.$name
            rest=$(('"$deadline"' - $(date +%s))); [ $rest -gt 0 ] || rest=1
            [ $name = demo ] || set -- '"$root"'/tests/examples/check.sh $name "$@"
            timeout $rest "$@" >log 2>&1; echo $? >status')
    bad=0
    printf '\n%-20s %-8s %s\n' example device "last result"
    for name in $(cut -d' ' -f1 $results/examples.list); do
        for device in cpu "$kind"; do
            log=$results/examples/$device.$name
            mark=
            if grep -q "built without" "$log/log" 2>/dev/null; then mark="off: "
            elif [ "$(cat "$log/status" 2>/dev/null)" != 0 ]; then mark="FAILED: " bad=1; fi
            line=$(grep -E 'loss|accuracy|error|%|=' "$log/log" 2>/dev/null | tail -1)
            printf '%-20s %-8s %s%s\n' "$name" "$device" "$mark" "$(echo "${line:-$(tail -1 "$log/log")}" | cut -c1-90)"
        done
    done
    return $bad
}

# run_programs PROCESSES PROGRAM... - runs tests of build/tests/, and test_python, which is test_gpu.py; the output of each is
# in results/PROGRAM.log.
run_programs() {
    processes=$1
    shift
    python=$PWD/$build/python
    # test_kill: only the run that is killed at random times, which must end with the same bits
    # shellcheck disable=SC2016
    for program in "$@"; do echo "$program"; done | GRADUS_TEST_GPU=1 GRADUS_KILL_DEVICE=$kind xargs -P "$processes" -L 1 sh -c '
        set -- '"$build"'/tests/$0
        [ $0 = test_kill ] && set -- "$@" killed_at_any_time
        [ $0 = test_python ] && set -- env PYTHONPATH='"$python"' python3 tests/python/run.py tests/python/test_gpu.py
        rest=$(('"$deadline"' - $(date +%s))); [ $rest -gt 0 ] || rest=1
        timeout $rest "$@" >'"$results"'/$0.log 2>&1; echo "status $?" >>'"$results"'/$0.log'
}

# A line for each program: passed, failed.
print_programs() {
    bad=0
    for program in "$@"; do
        log=$results/$program.log
        code=$(sed -n 's/^status //p' "$log" | tail -1)
        case $code in
        0) ;;
        77) printf '%-22s %8s\n' "$program" off; continue ;;
        *) [ "$code" = 124 ] && echo "out of time" >>"$log"; tail -20 "$log"; bad=1 ;;
        esac
        printf '%-22s %8s %8s\n' "$program" "$(grep -o '[0-9]* passed' "$log" | tail -1 | cut -d' ' -f1)" $((code != 0))
    done
    return $bad
}

part_test() {
    begin_part test 450
    needs_program $build/tests/test_ops || return 0
    suites=${SUITES:-"golden gradcheck strides inplace modes autocast capture"}
    rm -f $results/*.*
    export GRADUS_BACKEND_PATH=$PWD/$build/backends
    # test_cuda_faults fills the memory of the GPU, so it runs alone
    programs=$(for path in $build/tests/test_cuda_* $build/tests/test_kill; do
        [ -x "$path" ] && [ "${path##*/}" != test_cuda_faults ] && echo "${path##*/}"
    done)
    ls $build/python/gradus/_core*.so >/dev/null 2>&1 && programs="test_python $programs"
    status=0
    # shellcheck disable=SC2086
    run_programs 4 $programs &
    for suite in $suites; do
        for family in $(families); do echo "$suite $family"; done
    done | run_families "$build/tests/test_ops --device $kind --sample ${SAMPLE:-1} --suite \$0 --family \$1"
    run_examples || status=1
    wait
    if [ -x $build/tests/test_cuda_faults ]; then
        run_programs 1 test_cuda_faults
        programs="test_cuda_faults $programs"
    fi
    grep -h -A1 "^FAIL\|^CRASH" $results/*.* 2>/dev/null | head -40
    echo
    print_suites "$suites" || status=1
    # shellcheck disable=SC2086
    print_programs $programs || status=1
    [ $status = 0 ] && end_part test passed || end_part test FAILED
    return $status
}

# --- sanitize ---

part_sanitize() {
    begin_part sanitize 530
    needs_program $build/tests/test_ops || return 0
    sanitizer=$(find_sanitizer) || { echo "off: compute-sanitizer was not found"; return 0; }
    export GRADUS_BACKEND_PATH=$PWD/$build/backends
    rm -f $results/memcheck.* $results/racecheck.*
    for tool in memcheck racecheck; do
        for family in $(families); do echo "$tool $family"; done
    done | run_families "$sanitizer --tool \$0 --error-exitcode 86 $build/tests/test_ops --device $kind --sample 60 --suite golden --family \$1"
    status=0
    grep -h "=========" $results/memcheck.* $results/racecheck.* 2>/dev/null | grep -v "COMPUTE-SANITIZER\|ERROR SUMMARY: 0\|RACECHECK SUMMARY: 0" | head -40
    echo
    print_suites "memcheck racecheck" || status=1
    [ $status = 0 ] && end_part sanitize clean || end_part sanitize FAILED
    return $status
}

# --- bench ---

part_bench() {
    begin_part bench 260
    needs_program $build/bench/bench_device || return 0
    has_torch || { echo "off: python3 has no PyTorch with CUDA"; return 0; }
    export GRADUS_BACKEND_PATH=$PWD/$build/backends
    status=0
    # shellcheck disable=SC2086
    timeout "$(left)" python3 bench/versus_pytorch_cuda.py $build/bench/bench_device ${NETS:+--nets $NETS} --extra ${PEERS:-} || status=1
    [ $status = 0 ] && end_part bench done || end_part bench FAILED
    return $status
}

# --- train ---

# train_net NAME TARGET PATTERN MORE COMMAND... - a row of the table. The result is the number that PATTERN finds in the
# output; MORE: it must be at least TARGET, otherwise at most.
train_net() {
    name=$1 target=$2 pattern=$3 more=$4
    shift 4
    start=$(seconds)
    timeout "$(left)" "$@" >"$results/train.$name.log" 2>&1
    code=$?
    result=$(sed -n "$pattern" "$results/train.$name.log" | tail -1)
    reached=$(awk -v r="${result:-x}" -v t="$target" -v more="$more" 'BEGIN {
        if (r == "x") print "no"; else print ((more ? r + 0 >= t + 0 : r + 0 <= t + 0) ? "yes" : "no") }')
    if [ $code != 0 ] || [ "$reached" = no ]; then
        status=1
        tail -5 "$results/train.$name.log"
    fi
    rows="$rows$name ${result:--} $target $reached $(($(seconds) - start))\n"
}

part_train() {
    begin_part train 530
    export GRADUS_BACKEND_PATH=$PWD/$build/backends
    status=0
    rows=
    if needs_program $build/bench/bench_device && has_torch; then
        timeout "$(left)" python3 bench/versus_pytorch_cuda.py $build/bench/bench_device --twice \
            --nets "${TWICE-lenet,resnet18_bf16,resnet50_bf16,char_lstm_bf16,gpt2}" >$results/train.twice.log 2>&1 || status=1
        cat $results/train.twice.log
        grep -q DIFFERENT $results/train.twice.log && status=1
    else
        echo "off: python3 has no PyTorch with CUDA, so no net is trained twice"
    fi
    if [ -z "$data" ]; then
        echo "off: --data FOLDER is missing, so nothing else is trained"
        [ $status = 0 ] && end_part train done || end_part train FAILED
        return $status
    fi
    digits=
    for folder in "$data/mnist" "$data/MNIST" "$data/MNIST/raw" "$data"; do
        ls "$folder"/train-images* >/dev/null 2>&1 && digits=$folder && break
    done
    text=
    for file in tinyshakespeare.txt shakespeare.txt input.txt tinyshakespeare/input.txt; do
        [ -f "$data/$file" ] && text=$data/$file && break
    done
    if [ -z "$digits" ]; then echo "off: $data has no files of MNIST (train-images-idx3-ubyte)"
    elif needs_program $build/examples/mnist; then
        $build/bench/bench_feed "$digits" --device "$kind"
        train_net mnist 99.2 's/^\([0-9.]*\) % of .*/\1/p' 1 $build/examples/mnist "$digits" --device "$kind"
    fi
    if [ -z "$text" ]; then echo "off: $data has no text (tinyshakespeare.txt)"
    elif needs_program $build/examples/gpt; then
        train_net gpt 1.50 's/.*validation loss \([0-9.]*\).*/\1/p' '' $build/examples/gpt "$text" --large --device "$kind"
    fi
    echo
    printf '%-10s %10s %10s %8s %8s\n' net result target reached seconds
    # shellcheck disable=SC2059
    printf "$rows" | awk '{ printf "%-10s %10s %10s %8s %8s\n", $1, $2, $3, $4, $5 }'
    [ $status = 0 ] && end_part train done || end_part train FAILED
    return $status
}

failed=0
for part in $parts; do
    part_"$part" || failed=1
done
exit $failed
