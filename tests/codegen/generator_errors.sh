#!/bin/sh
# generator_errors.sh OPGEN - mistakes in records are errors of the generator, with file and line.
opgen=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/src/ops/family" "$folder/out/gradus" "$folder/out/ops/family"
failures=0

# expect LINE MESSAGE - the text on stdin as a source file gives this error; an empty message: none.
expect() {
    file=$folder/src/ops/family/family.c
    { cat; echo '#include "ops/family/family.gen.h"'; } >"$file"
    got=$("$opgen" "$folder/out" "$folder/src" "$file" 2>&1)
    want=${2:+$file:$1: error: $2}
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
exit $failures
