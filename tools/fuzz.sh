#!/bin/sh
# fuzz.sh BUILD SECONDS - runs each fuzz target of a build with GRADUS_FUZZ for SECONDS, on one core.
#
# The corpus of a target is in BUILD/corpus/TARGET; the next run continues from it. At first, the corpus of fuzz_onnx
# has the files that test_onnx_control writes, graphs with branches and loops, and files of other programs in
# tests/golden; that of fuzz_safetensors is from tests/golden and tests/fuzz/corpus, that of fuzz_image from
# tests/golden/images, that of fuzz_hdf5 from tests/golden/hdf5. An input that crashes is saved as BUILD/TARGET-crash-...
set -eu
build=$1
seconds=$2
failed=0
mkdir -p "$build/corpus/fuzz_onnx" "$build/corpus/fuzz_zip"
if [ -z "$(ls "$build/corpus/fuzz_onnx")" ]; then
    GRADUS_ONNX_DIR=$build/corpus/fuzz_onnx "$build/tests/test_onnx_control" go_through_a_file >/dev/null
    mv "$build"/corpus/fuzz_onnx/*.npz "$build/corpus/fuzz_zip/"
    for from in torch onnx; do
        for file in "$(dirname "$0")/../tests/golden/$from"/*.onnx; do
            cp "$file" "$build/corpus/fuzz_onnx/$from-$(basename "$file")"
        done
    done
fi
if [ ! -d "$build/corpus/fuzz_safetensors" ]; then
    mkdir -p "$build/corpus/fuzz_safetensors"
    cp "$(dirname "$0")/../tests/golden/safetensors"/*.safetensors "$(dirname "$0")/../tests/fuzz/corpus/safetensors"/*.bin \
        "$build/corpus/fuzz_safetensors/"
fi
if [ ! -d "$build/corpus/fuzz_image" ]; then
    mkdir -p "$build/corpus/fuzz_image" "$build/corpus/fuzz_csv"
    find "$(dirname "$0")/../tests/golden/images" -type f -size -2k ! -name '*.npz' -exec cp {} "$build/corpus/fuzz_image/" \;
    printf 'a,"b""c",d\r\n1,"x\ny",2.5\r\n, u ,NA\n-3e4,x,7\n' >"$build/corpus/fuzz_csv/table.csv"
fi
if [ ! -d "$build/corpus/fuzz_prototxt" ]; then
    mkdir -p "$build/corpus/fuzz_prototxt" "$build/corpus/fuzz_caffemodel"
    printf 'name: "a" input: "x" input_dim: [1, 2]\nlayers { name: "c" type: CONVOLUTION bottom: "x" top: "y" blobs_lr: 1 weight_decay: 0
  param: "w" include { phase: TEST } convolution_param { num_output: 2 weight_filler { type: "xavier" } } blobs { data: 1 } }\n' \
        >"$build/corpus/fuzz_prototxt/v1.prototxt"
    printf 'net: "a" base_lr: 0.01 solver_type: ADAM net_param { layer { type: "BatchNorm" param {} param {} param {} } }\n' \
        >"$build/corpus/fuzz_prototxt/solver.prototxt"
    printf '\012\001a\242\006\026\012\001c\022\004ReLU:\013*\004\000\000\200?:\003\012\001\001' >"$build/corpus/fuzz_caffemodel/a.caffemodel"
fi
if [ ! -d "$build/corpus/fuzz_hdf5" ]; then
    mkdir -p "$build/corpus/fuzz_hdf5"
    for file in "$(dirname "$0")/../tests/golden/hdf5"/*.gz; do
        gzip -dc "$file" >"$build/corpus/fuzz_hdf5/$(basename "$file" .gz)"
    done
fi
for target in "$build"/tests/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    name=$(basename "$target")
    mkdir -p "$build/corpus/$name"
    echo "$name, $seconds seconds"
    if ! ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=0 UBSAN_OPTIONS=print_stacktrace=1 \
        "$target" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=4096 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="$build/$name-" "$build/corpus/$name" 2>"$build/$name.log"; then
        failed=1
        tail -40 "$build/$name.log"
    fi
    grep -E 'number_of_executed_units|new_units_added' "$build/$name.log" || true
done
exit $failed
