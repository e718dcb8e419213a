#!/bin/sh
# generator_errors.sh OPGEN - mistakes in records and in blocks of kernels are errors of the generator,
# with file and line.
opgen=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
for path in ops/family ops/other backend; do
    for kind in cpu cuda abacus; do mkdir -p "$folder/src/$path/$kind" "$folder/out/$path/$kind"; done
done
rmdir "$folder/src/backend/abacus"
mkdir -p "$folder/src/backend/test" "$folder/out/backend/test" "$folder/out/gradus"
failures=0

# expect LINE MESSAGE [NAME [MORE...]] - the text on stdin as NAME.c (ops/family/family) gives this error
# together with the files MORE; an empty message: none.
expect() {
    line=$1 message=$2 name=${3:-ops/family/family}
    [ $# -lt 3 ] && shift 2 || shift 3
    file=$folder/src/$name.c
    { cat; echo "#include \"$name.gen.h\""; } >"$file"
    got=$("$opgen" "$folder/out" "$folder/src" "$file" "$@" 2>&1)
    want=${message:+$file:$line: error: $message}
    [ "$got" = "$want" ] && return
    printf 'expected: %s\ngot:      %s\n' "$want" "$got"
    failures=$((failures + 1))
}

expect 0 '' <<'END'
/* family.c - right. */
/*op f(x) -> y  elementwise
 * Doc.
 *   slope float = 1
 *   y = x * slope
 *   onnx F alpha=slope~0.5
 *        when x:float  cast y   caffe G
 */
END
expect 6 "onnx F: no such option: 'alpha=slop'" <<'END'
/* family.c - an option that does not exist. */
/*op f(x) -> y  elementwise
 * Doc.
 *   slope float = 1
 *   y = x * slope
 *   onnx F alpha=slop   caffe G
 */
END
python_line() { # TEXT MESSAGE
    expect 2 "line python: $2" <<END
/* family.c - a mistake in the names for Python. */
/*op f(x) -> y  elementwise
 * Doc.
 *   slope float = 1
 *   y = x * slope
 *   python $1
 */
END
}
python_line '(x, slop)' "no input or option 'slop'"
python_line '(x, steep=slop)' "no input or option 'slop'"
python_line '(x, slope|how)' "no option 'how'"
python_line 'g(x, x)' "'x' is there twice"
python_line '(x, slope' "expected ')' in (x, slope"
python_line 'a b c d e' 'too many names'
expect 5 "onnx F: no such dtype: 'x:flot'" <<'END'
/* family.c - a bad word in a line that continues the text. */
/*op f(x) -> y  elementwise
 * Doc.
 *   y = x
 *   onnx F
 *        when x:flot
 */
END
expect 7 "no such type 'woat = 1'" <<'END'
/* family.c - the lines below count. */
/*op f(x) -> y  elementwise
 * Doc.
 *   y = x
 *   onnx F
 *        when x:float
 *   scale woat = 1
 */
END
expect 5 "onnx F2: no such input: 'z:float'" <<'END'
/* family.c - one variant is wrong. */
/*op f{1,2}(x, {z|w}) -> y
 * Doc.
 *   saves x
 *   onnx F{}  when z:float
 */
static gd_status fN_infer(gd_infer *i);
END

expect 2 "'opp' is no kind of block" <<'END'
/* family.c - a misspelled kind of block. */
/*opp f(x) -> y  elementwise
 * Doc.
 *   y = x
 */
END

# Blocks of kernels for the ops of this file.
ops=$folder/src/ops/family/ops.c
cat >"$ops" <<'END'
/* ops.c - three ops. */
/*op f(x) -> y  elementwise
 * Doc.
 *   y = x
 */
/*op g(x) -> y  elementwise
 * Doc.
 *   y = x
 */
/*op clone(x) -> y  elementwise
 * Doc.
 *   y = x
 */
#include "ops/family/ops.gen.h"
END
# expect_kernel LINE MESSAGE [NAME] - the same for a file with kernels (ops/family/cpu/kernels).
expect_kernel() { expect "$1" "$2" "${3:-ops/family/cpu/kernels}" "$ops"; }

expect_kernel 0 '' <<'END'
/* kernels.c - right: the words of a head can go on in lines that are indented further. */
/*kernel f.fast, g.fast  rank 10  wide
 *        dtypes f32 f64  run run_OP
 * Doc.
 */
/*kernel f.slow
 * Doc, in
 * two lines.
 */
static gd_status f_slow_run(gd_kernel_call *k);
END
expect_kernel 5 "f.fast for cpu is also at $folder/src/ops/family/cpu/kernels.c:2" <<'END'
/* kernels.c - two kernels of one name. */
/*kernel g.fast, f.fast  run run_fast
 * Doc.
 */
/*kernel f.fast  rank 10  run run_faster
 * Doc.
 */
END
expect_kernel 3 "there is no op 'h'" <<'END'
/* kernels.c - a block for an op that does not exist. */
/*kernel f.fast,
 *        h.fast  run run_OP
 * Doc.
 */
END
expect_kernel 4 "there is no op 'ff'" ops/family/cuda/kernels <<'END'
/* kernels.c - a misspelled op, on another device. */

static gd_status run_fast(gd_kernel_call *k);
/*kernel ff.fast  run run_fast
 * Doc.
 */
END
expect_kernel 2 "there is no op 'f2d'" <<'END'
/* kernels.c - ops of a list that do not exist: f{1,2}d has no record. */
/*kernel f.fast, g.fast, f{2,3}d.fast  run run_fast
 * Doc.
 */
END
expect_kernel 2 "'abacus' is no kind of device: kernels belong in src/backend/KIND/ or src/ops/FAMILY/KIND/" \
    ops/family/abacus/kernels <<'END'
/* kernels.c - a folder of an unknown kind. */
/*kernel f.beads  run run_beads
 * Doc.
 */
END
expect_kernel 2 "'family' is no kind of device: kernels belong in src/backend/KIND/ or src/ops/FAMILY/KIND/" \
    ops/family/kernels <<'END'
/* kernels.c - no folder of a kind. */
/*kernel f.fast  run run_fast
 * Doc.
 */
END
expect_kernel 4 "'widely' is no word of a kernel, or lacks a value" <<'END'
/* kernels.c - an unknown word. */
/*kernel f.fast  rank 10
 *        run run_fast
 *        widely
 * Doc.
 */
END
expect_kernel 2 "'f33' is no word of a kernel, or lacks a value" <<'END'
/* kernels.c - an unknown dtype. */
/*kernel f.fast  run run_fast  dtypes f32 f33
 * Doc.
 */
END
expect_kernel 2 "'rank' is no word of a kernel, or lacks a value" <<'END'
/* kernels.c - a rank that is no number. */
/*kernel f.fast  run run_fast  rank high
 * Doc.
 */
END
expect_kernel 2 'no function f_fast_run' <<'END'
/* kernels.c - no function that runs it. */
/*kernel f.fast
 * Doc.
 */
END
expect_kernel 2 'no sentence below f.fast says what the kernel is' <<'END'
/* kernels.c - no documentation. */
/*kernel f.fast  run run_fast
 */
END
expect_kernel 2 "'f' is not op.variant" <<'END'
/* kernels.c - no name for the kernel. */
/*kernel f  run run_fast
 * Doc.
 */
END
expect_kernel 2 "'kernal' is no kind of block" <<'END'
/* kernels.c - a block that would register nothing. */
/*kernal f.fast  run run_fast
 * Doc.
 */
END
# Folders of kernels: backend/KIND or the op's family.
expect_kernel 0 '' backend/cuda/kernels <<'END'
/* kernels.c - what each device has. */
/*kernel clone.views, elementwise.compiled, elementwise_list.compiled, fused_reduction.blocks
 *        run run_OP
 * Doc.
 */
END
expect_kernel 0 '' ops/other/cuda/kernels <<'END'
/* kernels.c - a kernel of a family for lists of calls, which belong to no family. */
/*kernel elementwise_list.products  run run_list
 * Doc.
 */
END
expect_kernel 0 '' backend/test/kernels <<'END'
/* kernels.c - the test device has its kernels in one folder. */
/*kernel f.simple  run run_f
 * Doc.
 */
END
expect_kernel 3 "'f' is an op of src/ops/family/: its kernels belong in src/ops/family/cuda/" \
    backend/cuda/kernels <<'END'
/* kernels.c - an op of a family in the folder of a device. */
/*kernel clone.views,
 *        f.fast  run run_OP
 * Doc.
 */
END
expect_kernel 2 "'g' is an op of src/ops/family/: its kernels belong in src/ops/family/cpu/" \
    ops/other/cpu/kernels <<'END'
/* kernels.c - an op of another family. */
/*kernel g.fast  run run_g
 * Doc.
 */
END
expect_kernel 2 "'clone' is an op of src/ops/family/: its kernels belong in src/ops/family/cpu/" \
    ops/other/cpu/kernels <<'END'
/* kernels.c - copies in another family. */
/*kernel clone.fast  run run_clone
 * Doc.
 */
END
exit $failures
