#!/bin/sh
# command.sh GRADUS PART - checks the output and the exit codes of the gradus command.
set -u
gradus=$1
part=$2
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failures=0

# expect CODE TEXT ARGUMENTS...: checks the exit code, and that stdout or stderr contains TEXT ("": anything).
expect() {
    code=$1 text=$2
    shift 2
    "$gradus" "$@" >out 2>err </dev/null
    got=$?
    if [ $got -ne "$code" ]; then
        echo "gradus $*: exit code $got, not $code"
        sed 's/^/    /' err
        failures=$((failures + 1))
    fi
    if [ -n "$text" ] && ! grep -q -e "$text" out err; then
        echo "gradus $*: '$text' is not in the output"
        sed 's/^/    /' out err | head -20
        failures=$((failures + 1))
    fi
}

# check_json: checks that `out` is JSON, if Python is available.
check_json() {
    command -v python3 >/dev/null || return 0
    python3 -m json.tool <out >/dev/null 2>&1 && return 0
    echo "not JSON:"
    cat out
    failures=$((failures + 1))
}

case $part in
help)
    expect 0 'usage: gradus COMMAND' --help
    expect 2 'usage: gradus COMMAND'
    expect 0 'gradus 0' --version
    for command in demo train eval predict summary list ops info; do
        expect 0 "usage: gradus $command" $command --help
        expect 0 "usage: gradus $command" help $command
        awk -v c=$command 'length($0) > 100 { print "gradus " c " --help: a line of " length($0) " columns"; bad = 1 }
                           END { exit bad }' out || failures=$((failures + 1))
    done
    expect 2 "no command 'trian'" trian
    expect 2 'did you mean --epochs' train --epoch 3
    expect 2 'an integer' train --epochs many
    expect 2 'needs a value' train --epochs
    expect 2 '.-model is missing' train
    expect 2 '.-data is missing' train --model lenet
    expect 2 'needs --checkpoints' train --model lenet --data digits --resume
    expect 2 'must end in' train --model lenet --data digits --out m.txt
    expect 1 "there is no net 'lent'" train --model lent --data digits,count=100
    expect 1 "there is no dataset 'digit'" train --model lenet --data digit
    expect 2 'needs a path' train --model lenet --data mnist
    expect 1 'nowhere' train --model lenet --data mnist:nowhere
    expect 1 'abacus' train --model lenet --data digits,count=100 --device abacus
    expect 1 'there is no optimizer' train --model lenet --data digits,count=100 --optimizer adamm
    expect 1 'no_such_file.onnx' eval no_such_file.onnx --data digits
    expect 2 'a model and at least one image' predict m.onnx
    ;;
look)
    expect 0 '61,706 parameters' summary lenet
    expect 0 '11,181,642 parameters' summary "resnet18 classes=10" --input 1,3,64,64
    expect 2 'needs sizes' summary lenet --input 1,x
    expect 0 'gradus list transforms' list
    for kind in nets datasets transforms layers optimizers schedules metrics callbacks inits; do
        expect 0 "gradus list $kind NAME" list $kind
        expect 0 '' list $kind --json
        check_json
    done
    expect 0 'target' list dataset csv
    expect 2 'there is no list of' list things
    expect 0 'conv2d(x, w, b?) -> y' ops conv2d
    expect 0 'ops. \* has no gradient' ops
    expect 0 '' ops --json
    check_json
    expect 2 "there is no op 'conv'" ops conv
    expect 0 'on cpu: kernel .*reference' ops conv2d
    expect 0 'on cpu: expression' ops sinc
    expect 0 '^conv2d .*reference' ops --device cpu
    grep -q '^sinc *expression$' out && grep -q '^sum *+ .*reference' out && grep -q '^zeros *body$' out &&
        grep -q '^transpose *view$' out && grep -q '^assign *host$' out &&
        grep -q '^cpu: [0-9]* ops, [1-9][0-9]* by kernels.*, 0 not at all$' out ||
        { echo 'gradus ops --device cpu: a line is missing'; failures=$((failures + 1)); }
    expect 0 '^op  *cpu' ops --kernels
    expect 0 'A device needs kernels for [0-9]* ops' ops --kernels
    expect 0 '' ops --kernels --json
    check_json
    expect 1 "no kernels for 'abacus'" ops --device abacus
    # all kernels of one op, for each kind of device, in the order in which they are tried
    expect 0 '^on cpu: kernel$' ops --kernels conv2d
    [ "$(sed -n 's/^  \([a-z]*\)  *rank \([0-9]*\), .*/\1 \2/p' out | head -n 4 | tr '\n' ' ')" = \
        'direct 30 winograd 20 gemm 10 reference 0 ' ] && grep -q '^  gemm  *rank 10, f16 bf16 f32 f64, wide$' out &&
        grep -q 'A product of matrices' out || { echo 'ops --kernels conv2d: not the kernels of conv2d'; failures=$((failures + 1)); }
    expect 0 '^  compiled  *rank 10, any dtype$' ops --kernels tanh
    expect 0 '^on cpu: body$' ops --kernels zeros
    expect 0 '"name":"gemm","rank":10,"dtypes":"f16 bf16 f32 f64","words":"wide"' ops --kernels conv2d --json
    check_json
    expect 0 '^on cpu' ops --kernels conv2d --device cpu
    expect 1 "no kernels for 'abacus'" ops --kernels conv2d --device abacus
    expect 2 "there is no op 'conv2'; did you mean conv2d?" ops --kernels conv2
    expect 2 "there is no op 'no_such_op'\$" ops --kernels no_such_op
    expect 0 'instruction set' info
    expect 0 '' info --json
    check_json
    ;;
train)
    expect 0 'Saved m.onnx' train --model convnet --data digits,count=1500 --epochs 2 --lr 0.003 --seed 1 \
        --augment 'crop size=28 padding=1' --schedule cosine --out m.onnx --curve c.svg --log log.csv --checkpoints run
    [ -s m.onnx ] && [ -s c.svg ] && [ "$(wc -l <log.csv)" -eq 3 ] || { echo 'files are missing'; failures=$((failures + 1)); }
    expect 0 'accuracy' eval m.onnx --data digits,count=300,seed=7 --confusion
    grep -q 'Confusion matrix' out || { echo 'no confusion matrix'; failures=$((failures + 1)); }
    expect 0 'accuracy' eval m.onnx --data digits,count=30,seed=7 --device test
    expect 0 '' eval m.onnx --data digits,count=300,seed=7 --json --quiet
    check_json
    expect 0 'convnet' info m.onnx
    expect 0 'parameters' summary m.onnx
    expect 0 'resumed from step' train --model convnet --data digits,count=1500 --epochs 3 --lr 0.003 --seed 1 \
        --augment 'crop size=28 padding=1' --schedule "cosine steps=44" --out m3.onnx --checkpoints run --resume --patience 9
    expect 0 '' train --model m.onnx --data digits,count=500,seed=3 --epochs 1 --out tuned.onnx --json --quiet
    check_json
    expect 0 '' train --model mlp --data digits,count=500 --epochs 1 --out weights.safetensors --quiet
    expect 0 '' train --model mlp --weights weights.safetensors --data digits,count=500 --epochs 1 --quiet --eager --precision bf16
    expect 0 'Saved d.onnx' train --model mlp --data digits,count=100 --epochs 1 --out d.onnx --device test
    printf 'a,b,y\n' >t.csv
    i=0
    while [ $i -lt 60 ]; do
        echo "$i,$((i % 7)),$((2 * i + i % 7))" >>t.csv
        i=$((i + 1))
    done
    expect 0 'mae' train --model mlp --data csv:t.csv,target=y,standardize=true --epochs 2 --out t.onnx
    expect 1 'log.csv' predict log.csv c.svg
    # a broken image is reported, and the other images are still processed
    if "$gradus" demo --samples 300 --epochs 1 --dir demo --quiet >out 2>err && [ -s demo/digit.png ] &&
        ! "$gradus" predict m.onnx demo/digit.png 2>&1 | grep -q 'without libpng'; then
        expect 0 '%' predict m.onnx demo/digit.png
        [ "$(wc -l <out)" -eq 5 ] || { echo 'predict does not print five lines'; failures=$((failures + 1)); }
        head -c 60 demo/digit.png >broken.png
        expect 1 'broken.png' predict m.onnx broken.png demo/digit.png --top 2
        expect 0 '%' predict m.onnx demo/digit.png --device test
        expect 0 '' predict m.onnx demo/digit.png --json
        check_json
        for file in demo/digits.onnx demo/curve.svg; do
            [ -s $file ] || { echo "$file is missing"; failures=$((failures + 1)); }
        done
    else
        grep -q 'unseen digits are right' out || { cat err; failures=$((failures + 1)); }
    fi
    ;;
esac
[ $failures -eq 0 ]
