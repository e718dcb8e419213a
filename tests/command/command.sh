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
    for command in demo train eval predict summary list ops info time test convert-mnist convert-images compute-mean \
        draw extract-features upgrade-net upgrade-solver; do
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
    expect 2 'it needs a model' predict
    expect 1 'm.onnx' predict m.onnx
    ;;
mistakes)
    # options: said before anything is read or trained
    expect 2 'lr is -1; it must be in (0, inf)' train --model lenet --data digits --lr -1
    expect 2 'lr is 0; it must be in (0, inf)' train --model lenet --data digits --lr 0
    expect 2 'two learning rates' train --model lenet --data digits --lr 1 --optimizer 'sgd lr=2'
    expect 2 'every needs --checkpoints' train --model lenet --data digits --every 5
    expect 2 'every is 0' train --model lenet --data digits --every 0 --checkpoints run
    expect 2 'patience is 0' train --model lenet --data digits --patience 0
    expect 2 'patience needs samples to validate on' train --model lenet --data digits,count=100 --patience 3 --split 0
    expect 2 'split is 1; it must be in \[0, 1)' train --model lenet --data digits --split 1
    expect 2 'clip is -1' train --model lenet --data digits --clip -1
    expect 2 'steps is -3' train --model lenet --data digits --steps -3
    expect 2 'must end in .svg' train --model lenet --data digits --curve c.png
    expect 2 'validation and --split' train --model lenet --data digits,count=100 --validation digits,count=10 --split 0.3
    expect 2 '.-validation digits:x: this kind takes no path' train --model lenet --data digits,count=100 --validation digits:x
    expect 2 '.-data digits:x: this kind takes no path' train --model lenet --data digits:x --validation digits,count=10
    expect 1 'there is no folder /nowhere' train --model lenet --data digits,count=100 --out /nowhere/m.onnx
    # no file can be created here, whatever the permissions say
    expect 1 'no file can be written in the folder /proc' train --model mlp --data digits,count=100 --out /proc/m.onnx
    grep -q 'epoch' out err && { echo 'trained before --out was checked'; failures=$((failures + 1)); }
    mkdir folder.onnx
    expect 1 'folder.onnx: it is a folder' train --model lenet --data digits,count=100 --out folder.onnx
    # nor over a pipe, with a name that leaves no room, or over a file of another user in a sticky folder
    mkfifo pipe.onnx pipe.svg pipe.csv
    long=$(printf '%0246d' 0)
    small='train --model mlp --data digits,count=100 --steps 1'
    for option in 'out pipe.onnx' 'curve pipe.svg' 'log pipe.csv'; do
        expect 1 "$option: it exists and is no regular file" $small --$option
        grep -q 'epoch' out err && { echo "trained before --$option was checked"; failures=$((failures + 1)); }
    done
    ln -s pipe.onnx link.onnx
    expect 1 'link.onnx: it exists and is no regular file' $small --out link.onnx
    expect 1 'the name has 251 characters; at most 248 fit' $small --out $long.onnx
    grep -q 'epoch' out err && { echo 'trained before the length of --out was checked'; failures=$((failures + 1)); }
    expect 1 'the name has 250 characters; at most 248 fit' $small --curve $long.svg
    expect 0 'Saved' $small --out "$(printf '%0243d' 0).onnx"
    if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
        mkdir sticky && chmod 1777 sticky && chmod 755 . && : >sticky/m.onnx && ln -s sticky/m.onnx m.onnx
        printf '#!/bin/sh\nexec setpriv --reuid=12345 --clear-groups "%s" "$@"\n' "$gradus" >as_other
        chmod 755 as_other
        if ./as_other --version >/dev/null 2>&1; then
            root=$gradus gradus=./as_other
            expect 1 'belongs to another user, and in the sticky folder sticky only' $small --out sticky/m.onnx
            expect 1 'belongs to another user, and in the sticky folder .*/sticky only' $small --out m.onnx
            expect 0 'Saved' $small --out sticky/mine.onnx
            gradus=$root
        fi
    fi
    expect 1 '.-validation digits,count=0: there are no samples to validate on' \
        train --model lenet --data digits,count=100 --validation digits,count=0
    expect 1 '.-data digits,count=0: there are no samples' train --model lenet --data digits,count=0
    # a failure names the dataset once, and what progress shows is not logged as well
    expect 1 '^gradus: gd_dataset_digits: count is -3; it must be in' train --model lenet --data digits,count=-3
    expect 0 '' train --model mlp --data digits,count=100 --epochs 1 --checkpoints again --quiet
    expect 0 "moved 1 checkpoint of an earlier run" train --model mlp --data digits,count=100 --epochs 1 --checkpoints again
    [ "$(grep -c 'moved' err)" -eq 1 ] || { echo 'the moved checkpoints are named twice'; cat err; failures=$((failures + 1)); }
    expect 0 'warning: again: moved 1 checkpoint of an earlier run' \
        train --model mlp --data digits,count=100 --epochs 1 --checkpoints again --quiet
    printf '#!/bin/sh\ntrap "" XFSZ\nulimit -f 16\nexec "%s" "$@"\n' "$gradus" >small_files && chmod 755 small_files
    root=$gradus gradus=./small_files
    expect 0 'is not saved, and training continues' train --model mlp --data digits,count=100 --epochs 2 --checkpoints full
    [ "$(grep -c 'step 2 is not saved' err)" -eq 1 ] ||
        { echo 'a failed save is named twice'; cat err; failures=$((failures + 1)); }
    gradus=$root
    # no failure ends in a line of the command's source
    for command in 'train --model lenet --data mnist:nowhere' 'train --model lent --data digits' \
        'train --model lenet --data digits,count=100 --optimizer adamm' 'eval no.onnx --data digits' \
        'train --model lenet --data digits,count=100 --transform normalise'; do
        expect 1 '' $command
        grep -E '[a-z_]+\.c:[0-9]+' out err && { echo "gradus $command: a line of source"; failures=$((failures + 1)); }
    done
    # paths and values with commas
    printf 'a,y\n1,2\n3,4\n5,6\n' >"x, y's.csv"
    expect 0 '3 samples' train --model mlp --data "csv:'x, y''s.csv',target=y" --epochs 1 --split 0
    expect 2 'a quote is not closed' train --model mlp --data "csv:'x, y.csv"
    expect 2 'written in quotes' train --model mlp --data 'csv:x, y.csv,target=y'
    expect 2 'text after a quoted value' train --model mlp --data "csv:'x'y"
    # what is said about a run
    expect 0 'nothing will be saved' train --model mlp --data digits,count=100 --epochs 1
    expect 0 'too few to hold out' train --model mlp --data digits,count=5 --epochs 1
    grep -q '5 samples, batches of 64' err || { echo 'the plan is wrong'; cat err; failures=$((failures + 1)); }
    expect 0 '90 samples, validated on 10, batches' train --model mlp --data digits,count=100 --epochs 1
    # weights of another net; some that fit
    expect 0 '' train --model mlp --data digits,count=100 --epochs 1 --out mlp.safetensors --quiet
    expect 1 'nothing of it fits lenet' train --model lenet --data digits,count=100 --epochs 1 --weights mlp.safetensors
    # a model with more outputs than names of classes
    expect 0 '' train --model 'mlp outputs=12' --data digits,count=100 --steps 2 --out m12.onnx --quiet
    expect 0 ' 11 ' eval m12.onnx --data digits,count=100 --confusion
    expect 0 '"confusion":\[\[' eval m12.onnx --data digits,count=100 --confusion --json
    check_json
    grep -q '"classes":\["0",.*"class 11"\]' out || { echo 'classes are missing'; failures=$((failures + 1)); }
    ;;
classes)
    # images of two classes, a and b
    for class in a b; do
        mkdir -p images/$class other/$class other/z
        for i in 1 2 3 4 5 6; do
            printf 'P5 28 28 255 ' >images/$class/$i.pgm
            [ $class = a ] && grey=0 || grey=377
            head -c 784 /dev/zero | tr '\0' "\\$grey" >>images/$class/$i.pgm
        done
    done
    cp images/a/1.pgm other/z/1.pgm
    cp images/b/*.pgm other/b
    expect 0 '' train --model lenet --data digits,count=200 --epochs 1 --out digits.onnx --quiet
    expect 0 'has 10 outputs, and the data have 2 classes: fc3.weight, fc3.bias are new' \
        train --model digits.onnx --data image_folder:images,channels=1 --epochs 8 --split 0 --lr 0.01 --out tuned.onnx
    expect 0 'classes=2' info tuned.onnx
    expect 0 '' predict tuned.onnx images/a/1.pgm --top 10
    [ "$(grep -c '%' out)" -eq 2 ] || { echo 'a model of 2 classes predicts others'; cat out; failures=$((failures + 1)); }
    expect 0 'accuracy     1' eval tuned.onnx --data image_folder:images,channels=1 --confusion
    # data with a part of the classes are renumbered; unknown classes are refused
    rm -r other/a other/z
    expect 0 'accuracy     1' eval tuned.onnx --data image_folder:other,channels=1
    expect 1 "the class 'a', which digits.onnx does not know; it knows 0, 1, 2" \
        eval digits.onnx --data image_folder:images,channels=1
    # the same classes: the net stays, also one with spare outputs
    expect 0 '' train --model 'lenet classes=12' --data digits,count=200 --epochs 1 --out l12.onnx --quiet
    expect 0 '' train --model l12.onnx --data digits,count=200 --epochs 1 --out l12.onnx --quiet
    expect 0 'classes=12' info l12.onnx
    # a file that does not name its net
    if command -v python3 >/dev/null; then
        python3 - <<'PYTHON'
data = open('digits.onnx', 'rb').read()
open('graph.onnx', 'wb').write(data.replace(b'gradus.model', b'gradus.mobel'))
PYTHON
        expect 1 'has 10 outputs, and the data have 2 classes; a new last layer needs a file that names' \
            train --model graph.onnx --data image_folder:images,channels=1 --epochs 1
        expect 0 '' train --model graph.onnx --data digits,count=100 --steps 1 --quiet
        # a file that names another net: it trains as a graph, and says so
        python3 - <<'PYTHON'
data = open('digits.onnx', 'rb').read()
open('other.onnx', 'wb').write(data.replace(b'lenet classes=10', b'lenet classes=12'))
PYTHON
        expect 0 "the net 'lenet classes=12.*' cannot be made from other.onnx: it has other shapes of fc3.weight, fc3.bias; it trains as" \
            train --model other.onnx --data digits,count=100 --steps 1 --quiet
    fi
    # batch norms whose images are one pixel
    expect 0 '' train --model resnet18 --data digits,count=40 --steps 1 --out r.onnx --quiet
    expect 0 'has 10 outputs, and the data have 2 classes: fc.weight, fc.bias are new' \
        train --model r.onnx --data image_folder:images,channels=1 --steps 1
    expect 0 '' train --model r.onnx --data digits,count=40 --steps 1 --out r.safetensors --quiet
    [ ! -s err ] || { echo 'a net with batch norms is not made again'; cat err; failures=$((failures + 1)); }
    expect 0 '' train --model resnet18 --weights r.safetensors --data digits,count=40 --steps 1 --quiet
    ;;
tables)
    printf 'size,city,rooms,price\n' >t.csv
    i=0
    while [ $i -lt 60 ]; do
        [ $((i % 3)) -eq 0 ] && city=Ulm || city=Bern
        echo "$i,$city,$((i * i % 7)),$((2 * i + i % 7))" >>t.csv
        i=$((i + 1))
    done
    cut -d, -f1-3 t.csv >rows.csv
    expect 0 'predict p.onnx ROWS.csv' train --model mlp --data csv:t.csv,target=price,standardize=true \
        --epochs 30 --lr 0.02 --out p.onnx --seed 1
    expect 0 '^prediction$' predict p.onnx rows.csv
    mv out from_rows
    [ "$(wc -l <from_rows)" -eq 61 ] || { echo 'a row is missing'; failures=$((failures + 1)); }
    expect 0 '' predict p.onnx t.csv # the target is ignored
    cmp out from_rows || failures=$((failures + 1))
    # one row is converted as in the training: its prediction is the same alone
    { sed -n 1p rows.csv; sed -n 31p rows.csv; } >one.csv
    expect 0 '' predict p.onnx one.csv
    [ "$(sed -n 2p out | cut -c1-5)" = "$(sed -n 31p from_rows | cut -c1-5)" ] ||
        { echo 'a row alone has another prediction'; failures=$((failures + 1)); }
    awk -F, 'NR > 1 { print $3 "," $1 "," $2 }' rows.csv | sed '1i rooms,size,city' >moved.csv
    expect 0 '' predict p.onnx moved.csv # columns in another order
    cmp out from_rows || failures=$((failures + 1))
    expect 0 '"values":' predict p.onnx rows.csv --json
    check_json
    printf 'sise,city\n1,Ulm\n' >wrong.csv
    expect 1 "has no columns 'size', 'rooms'; it has sise, city (unknown: 'sise')" predict p.onnx wrong.csv
    printf 'size,city,rooms,floor\n1,Ulm,2,3\n' >more.csv
    expect 0 "more.csv: column 'floor' is not used" predict p.onnx more.csv
    printf 'size,city,rooms,size\n1,Ulm,2,9\n' >twice.csv
    expect 0 'twice.csv: column 4 (size) is not used' predict p.onnx twice.csv
    printf 'size,city,rooms\n1,Ulm,\n' >missing.csv
    expect 1 'is a missing value; the training table was read without missing=mean' predict p.onnx missing.csv
    printf 'size,city,rooms\n1,Rome,2\n' >new.csv
    expect 1 "line 2, column 2 (city): 'Rome' is a category that the training table does not have" predict p.onnx new.csv
    # a file that is no table: its bytes do not reach the terminal, and JSON stays JSON
    printf 'P5 28 28 255 \377\033[31m\302\2331m\177\303\274,\n1,2\n' >image.pgm
    expect 1 'it has P5 28 28 255 .xff.x1b\[31m.xc2.x9b1m.x7fü' predict p.onnx image.pgm
    LC_ALL=C grep -q "$(printf '[\001-\010\033\177\377]')" err && { echo 'raw bytes of a file are printed'; failures=$((failures + 1)); }
    expect 1 '"error":.*255 .ufffd.u001b' predict p.onnx image.pgm --json
    check_json
    # a line for each row, also of a model whose training table left rows out
    { cat t.csv; echo '7,,1,2'; } >drop.csv
    expect 0 '60 samples' train --model mlp --data csv:drop.csv,target=price,missing=drop --epochs 1 --split 0 --out drop.onnx
    printf 'size,city,rooms\n1,Ulm,2\n3,Bern,\n' >missing.csv
    expect 1 'line 3, column 3 (rooms): .* the training table was read with missing=drop, and each row' predict drop.onnx missing.csv
    # part of the table: evaluated with the statistics of the training
    sed -n 1,21p t.csv >part.csv
    expect 0 'mae' eval p.onnx --data csv:part.csv
    expect 1 'no targets' eval p.onnx --data csv:rows.csv
    # classes
    expect 0 '' train --model mlp --data csv:t.csv,target=city,standardize=true --epochs 3 --out c.onnx --quiet
    cut -d, -f1,3,4 t.csv >c.csv
    expect 0 '^prediction,probability$' predict c.onnx c.csv
    grep -q '^Bern,0\.' out || { echo 'no class is predicted'; failures=$((failures + 1)); }
    expect 0 '"class":"Bern"' predict c.onnx c.csv --json
    check_json
    printf 'x;y\n1,5;2\n2,5;3\n3,5;4\n' >comma.csv
    expect 1 "column 1 (x): '1,5' looks like a number with a decimal comma" \
        train --model mlp --data 'csv:comma.csv,separator=;,target=y'
    expect 0 '' train --model mlp --data 'csv:comma.csv,separator=;,decimal=comma,target=y' --epochs 1 --split 0 \
        --quiet --out comma.onnx
    expect 0 '^prediction$' predict comma.onnx comma.csv
    ;;
texts)
    i=0
    while [ $i -lt 60 ]; do
        printf 'to be or not to be that is the question '
        i=$((i + 1))
    done >t.txt
    for model in 'gpt layers=1 width=16 heads=2 context=16' 'char_lstm hidden=16 embedding=8 layers=1'; do
        expect 0 'predict m.onnx --text TEXT' train --model "$model" --data text:t.txt,length=16 --epochs 3 --lr 0.01 \
            --out m.onnx
        expect 0 '^accuracy' eval m.onnx --data text:t.txt,length=16
        expect 0 '' predict m.onnx --text 'to be' --length 40
        [ "$(cut -c1-5 out)" = 'to be' ] && [ "$(wc -c <out)" -eq 46 ] ||
            { echo 'the text is not continued'; cat out; failures=$((failures + 1)); }
        mv out first
        expect 0 '' predict m.onnx --text 'to be' --length 40
        cmp out first || failures=$((failures + 1)) # the same seed
        expect 0 '"text":"to be' predict m.onnx --text 'to be' --temperature 0 --json
        check_json
        expect 0 '' predict m.onnx --text '' --length 5
    done
    # a text with more characters, or fewer: the weights of characters are new
    printf 'to be, or not to be; to be, or not to be; to be, or not to be' >more.txt
    expect 0 '' train --model 'gpt layers=1 width=16 heads=2 context=16' --data text:t.txt,length=16 --steps 1 --out g.onnx --quiet
    expect 0 'has 13 outputs, and the data have 9 classes: transformer.wte.weight is new' \
        train --model g.onnx --data text:more.txt,length=16 --steps 1 --out fewer.onnx
    expect 0 'has 9 outputs, and the data have 13 classes: transformer.wte.weight is new' \
        train --model fewer.onnx --data text:t.txt,length=16 --steps 1
    expect 0 '' train --model g.onnx --data text:t.txt,length=16 --steps 1 --quiet
    [ ! -s err ] || { echo 'a net with tied weights is not made again'; cat err; failures=$((failures + 1)); }
    # a text with fewer characters has other numbers for them
    printf 'to be or not to be to be or not to be to be or not to be' >part.txt
    expect 0 '^loss' eval m.onnx --data text:part.txt,length=16
    printf 'Zorro and Zorro and Zorro and Zorro' >other.txt
    expect 1 "which m.onnx does not know" eval m.onnx --data text:other.txt,length=16
    expect 1 "has not seen 'Z'" predict m.onnx --text 'Zorro'
    expect 2 'text TEXT lets it continue' predict m.onnx
    expect 2 'it takes no files' predict m.onnx t.txt
    ;;
resume)
    run="train --model mlp --data digits,count=300 --seed 1 --checkpoints run"
    expect 0 '' $run --epochs 1 --lr 0.003 --quiet
    expect 0 'resuming from step' $run --epochs 2 --lr 0.003 --resume
    [ "$(grep -c 'resum' err)" -eq 1 ] || { echo 'resuming is said twice'; cat err; failures=$((failures + 1)); }
    expect 0 "lr was '0.003', and now it is '0.0001'; the run continues with the rate of its checkpoint" \
        $run --epochs 3 --lr 0.0001 --resume --log log.csv
    [ "$(tail -1 log.csv | cut -d, -f7)" = 0.003 ] || { echo 'the rate changed'; cat log.csv; failures=$((failures + 1)); }
    expect 1 "transform was not given, and now it is 'normalize mean=5 std=9'" \
        $run --epochs 4 --resume --transform 'normalize mean=5 std=9'
    expect 1 "augment was not given" $run --epochs 4 --resume --augment flip
    expect 1 "batch was '64', and now it is '32'" $run --epochs 4 --resume --batch 32
    expect 1 "split was '0.1', and now it is '0.2'" $run --epochs 4 --resume --split 0.2
    expect 1 "schedule was not given, and now it is 'cosine steps=" $run --epochs 4 --resume --schedule cosine
    expect 1 "optimizer was 'adamw', and now it is 'sgd'" $run --epochs 4 --resume --optimizer sgd
    expect 1 "model was 'mlp outputs=10', and now" $run --model lenet --epochs 4 --resume
    expect 1 "data was 'digits,count=300', and now it is 'digits,count=300,seed=3'" \
        $run --data digits,count=300,seed=3 --epochs 4 --resume
    expect 1 "metrics was not given, and now it is 'accuracy,f1'" $run --epochs 4 --resume --metrics accuracy,f1
    expect 0 '' train --model mlp --data digits,count=100 --epochs 1 --out w.safetensors --quiet
    expect 1 "weights was not given, and now it is 'w.safetensors'" $run --epochs 4 --resume --weights w.safetensors
    expect 0 'the run in run has already ended: it has 3 epochs' $run --epochs 3 --resume
    # the newest checkpoint is damaged: the settings are those of the one that the run continues from
    cp -r run damaged
    for file in damaged/step-*; do newest=$file; done
    head -c 1000 "$newest" >short && mv short "$newest"
    expect 1 "batch was '64', and now it is '32'" $run --checkpoints damaged --epochs 4 --resume --batch 32
    expect 0 'resuming from step' $run --checkpoints damaged --epochs 4 --resume
    # another kind of device: said, and not again
    cp -r run device
    expect 0 "device was 'cpu', and now it is 'test'; the run continues with the new one, and its result has other bits" \
        $run --checkpoints device --epochs 4 --resume --device test
    expect 0 '' $run --checkpoints device --epochs 5 --resume --device test
    grep -q 'device was' err && { echo 'the device is named twice'; failures=$((failures + 1)); }
    expect 0 'the run continues with the same samples' $run --data digits,seed=0,count=300 --epochs 4 --resume
    # a file that has changed in place, and one that was moved
    printf 'x,y\n' >d.csv
    i=0
    while [ $i -lt 40 ]; do echo "$i,$((3 * i))" >>d.csv && i=$((i + 1)); done
    run="train --model mlp --checkpoints table --resume"
    expect 0 '' $run --data csv:d.csv,target=y --epochs 1 --quiet
    cp d.csv e.csv
    expect 0 'the same samples' $run --data csv:e.csv,target=y --epochs 2
    sed -i 's/^0,0$/0,1/' e.csv
    expect 1 'the samples of csv:e.csv,target=y have changed' $run --data csv:e.csv,target=y --epochs 3
    expect 1 'There are as many as before, 36 samples, validated on 4' $run --data csv:e.csv,target=y --epochs 3
    # every sample counts, wherever it is
    run="train --model mlp --checkpoints many --resume"
    i=0
    while [ $i -lt 1000 ]; do echo "$i,$((3 * i))" && i=$((i + 1)); done | sed '1i x,y' >many.csv
    cp many.csv original.csv
    expect 0 '' $run --data csv:many.csv,target=y --epochs 1 --quiet
    for i in 3 500 998; do
        sed "s/^$i,.*/$i,1/" original.csv >many.csv
        expect 1 'the samples of csv:many.csv,target=y have changed' $run --data csv:many.csv,target=y --epochs 2
    done
    head -n 1000 original.csv >many.csv
    expect 1 "the data was '900 samples, validated on 100', and now it is '899 samples, validated on 100'" \
        $run --data csv:many.csv,target=y --epochs 2
    # two long names with the same beginning
    name=$(printf '%090d' 0)
    cp original.csv $name-a.csv && sed 's/^3,.*/3,1/' original.csv >$name-b.csv
    run="train --model mlp --checkpoints long --resume"
    expect 0 '' $run --data csv:$name-a.csv,target=y --epochs 1 --quiet
    expect 1 "data begins as before, with 'csv:$name.', but has changed" $run --data csv:$name-b.csv,target=y --epochs 2
    # validation that has moved
    run="train --model mlp --checkpoints moved --resume --data csv:original.csv,target=y"
    expect 0 '' $run --validation csv:d.csv --epochs 1 --quiet
    cp d.csv d2.csv
    expect 0 "validation was 'csv:d.csv', and now it is 'csv:d2.csv'; the run continues with the same samples" \
        $run --validation csv:d2.csv --epochs 2
    expect 1 "validation was 'csv:d2.csv', and now it is 'csv:e.csv'; the result would" $run --validation csv:e.csv --epochs 3
    # more samples than are compared
    run="train --model mlp --checkpoints large --resume --data digits,count=25000 --split 0 --steps 1 --batch 8"
    expect 0 '' $run
    grep -q 'compared' err && { echo 'compared with no checkpoint'; failures=$((failures + 1)); }
    expect 0 'in large, 12500 of 25000 samples were compared; a change of others goes unnoticed' $run
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
    # kernels without a text have no line for it
    expect 0 '^  reference *rank 0, ' ops --kernels sum
    ! grep -q ' $' out || { echo 'ops --kernels sum: a line ends in spaces'; failures=$((failures + 1)); }
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
pictures)
    expect 0 '' draw lenet lenet.svg
    grep -q '>conv2d<' lenet.svg || { echo 'lenet.svg has no layers'; failures=$((failures + 1)); }
    expect 0 '' train --model lenet --data digits,count=100 --steps 1 --out m.onnx
    expect 0 '' draw m.onnx m.dot --rank-dir LR
    grep -q 'rankdir=LR' m.dot || { echo 'm.dot is not from left to right'; failures=$((failures + 1)); }
    grep -q 'conv1  conv2d' m.dot || { echo 'm.dot has not the names of the parameters'; failures=$((failures + 1)); }
    expect 0 '' draw resnet18 net.svg --input 1,3,64,64
    grep -q '>\[1,64,32,32\]<' net.svg || { echo 'net.svg has not the shapes'; failures=$((failures + 1)); }
    expect 2 'needs a net and a file' draw lenet
    expect 2 'must end in .svg or .dot' draw lenet lenet.png
    expect 2 '.-rank-dir must be TB or LR' draw lenet lenet.svg --rank-dir RL
    expect 2 '.-phase must be TRAIN or TEST' draw lenet lenet.svg --phase test
    expect 2 '.-input needs sizes' draw lenet lenet.svg --input 1,x
    expect 1 "there is no net 'lent'" draw lent lenet.svg
    expect 1 'no_such.prototxt' draw no_such.prototxt net.svg
    expect 1 '/nowhere/net.svg' draw lenet /nowhere/net.svg
    # nets of Caffe, old and new
    cat >old.prototxt <<'END'
name: "old"
layers { name: "numbers" type: DATA top: "data" top: "label" data_param { source: "no_lmdb" batch_size: 2 } }
layers { name: "fc" type: INNER_PRODUCT bottom: "data" top: "fc" blobs_lr: 1 blobs_lr: 2
         inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layers { name: "relu" type: RELU bottom: "fc" top: "fc" }
layers { name: "loss" type: SOFTMAX_LOSS bottom: "fc" bottom: "label" top: "loss" }
END
    echo 'net: "new.prototxt" base_lr: 0.1 solver_type: ADAGRAD' >old_solver.prototxt
    expect 0 'wrote new.prototxt' upgrade-net old.prototxt new.prototxt
    grep -q 'type: "InnerProduct"' new.prototxt || { echo 'the net is not upgraded'; failures=$((failures + 1)); }
    expect 0 'wrote new.caffemodel' upgrade-net new.prototxt new.caffemodel
    expect 0 'wrote solver.prototxt' upgrade-solver old_solver.prototxt solver.prototxt
    grep -q 'type: "AdaGrad"' solver.prototxt || { echo 'the solver is not upgraded'; failures=$((failures + 1)); }
    expect 2 'two files, the old one and the new one' upgrade-net old.prototxt
    expect 1 'ends in .prototxt (text) or .caffemodel' upgrade-net old.prototxt new.txt
    expect 0 'has no shapes, since the data cannot be read' draw new.prototxt bare.svg
    expect 0 '' draw new.prototxt new.svg --phase TRAIN --dummy 'data=3,4,4 label=3'
    grep -q '>\[2,3,4,4\]<' new.svg || { echo 'new.svg has not the shapes'; failures=$((failures + 1)); }
    expect 2 '.-input is for nets that are not of Caffe' draw new.prototxt new.svg --input 1,3
    expect 0 'wrote f.npz' extract-features --model new.prototxt --blobs 'fc,label' --iterations 3 --out f.npz \
        --dummy 'data=3,4,4 label=3'
    expect 0 'weights is missing' extract-features -model new.prototxt -blobs fc -out f.npz -dummy 'data=3,4,4'
    expect 2 '.-blobs is missing' extract-features --model new.prototxt --out f.npz
    expect 2 'must end in .npz' extract-features --model new.prototxt --blobs fc --out f.npy
    expect 1 "no blob 'fc8'" extract-features --model new.prototxt --blobs fc8 --out f.npz --dummy 'data=3,4,4'
    ;;
databases)
    # two images of 2 x 3 pixels in the form of MNIST
    mkdir mnist
    printf '\000\000\010\003\000\000\000\002\000\000\000\002\000\000\000\003abcdefghijkl' >mnist/t10k-images-idx3-ubyte
    printf '\000\000\010\001\000\000\000\002\000\001' >mnist/t10k-labels-idx1-ubyte
    printf 'P6 4 2 255 abcdefghijklmnopqrstuvwx' >a.ppm
    printf 'P5 2 2 255 abcd' >'b c.ppm'
    printf 'a.ppm 3\nb c.ppm 0\n' >list.txt
    expect 2 'it needs a folder and a database; there are 1 arguments' convert-mnist mnist
    expect 2 "part is 'tset'; it must be train or test" convert-mnist mnist db --part tset
    expect 2 'it needs a list and a database' convert-images list.txt
    expect 2 "backend is 'leveldb'; only lmdb is written" convert-images list.txt db -backend leveldb
    expect 2 'gray takes no value' convert-images list.txt db --gray=maybe
    expect 2 'is given twice' convert-images . list.txt db --root .
    expect 2 'it needs a database and a file' compute-mean
    expect 1 'nowhere: has no file' convert-mnist nowhere db
    if "$gradus" convert-mnist mnist db --part test 2>&1 | grep -q 'without liblmdb'; then
        echo 'built without liblmdb: nothing else to test'
    else
        expect 1 'db: has a database already; remove the folder' convert-mnist mnist db --part test
        expect 0 'wrote 2 records to db2' convert-mnist mnist db2 --part test
        expect 0 'mean_value channel \[0\]: 102.5' compute-mean db2 mean.binaryproto
        [ -s mean.binaryproto ] || { echo 'mean.binaryproto is missing'; failures=$((failures + 1)); }
        expect 0 '"means":\[102.5\]' compute-mean db2 --json
        check_json
        expect 1 'height is 3 and width 0' convert-images list.txt db3 --resize-height 3
        expect 0 'wrote 2 records to db4' convert-images list.txt db4
        expect 0 '"records":2' convert-images ./ list.txt db5 -resize_height=3 -resize_width=5 --gray=true --shuffle=0 --json
        check_json
        expect 0 'Number of channels: 1' compute-mean db5
        expect 1 'has 2 x 2 pixels, and the first image 2 x 4' convert-images list.txt db6 --check-size
        printf 'a.ppm 3\ngone.ppm 1\n' >list.txt
        expect 0 'gone.ppm.*; the image is left out' convert-images list.txt db7 --quiet
        printf 'a.ppm cat\n' >list.txt
        expect 1 "line 1: the label 'cat' is no integer" convert-images list.txt db8
        printf 'gone.ppm 3\n' >list.txt
        expect 1 'none of the 1 images can be read' convert-images list.txt db9
    fi
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
    expect 0 'resuming from step' train --model convnet --data digits,count=1500 --epochs 3 --lr 0.003 --seed 1 \
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
