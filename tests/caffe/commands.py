"""The commands for Caffe's files, as their users type them.

    commands.py GRADUS [NAME]      all tests, or those whose names contain NAME

GRADUS_TEST_FULL=1: more kills. The net is a small LeNet, and the images are of noise with a bright row that tells the class.
"""
import json
import os
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

GRADUS = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
FULL = os.environ.get("GRADUS_TEST_FULL") == "1"
CLASSES = 10

NET = """name: "small LeNet"
layer { name: "mnist" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { scale: 0.00390625 } data_param { source: "train é db" batch_size: 16 backend: LMDB } }
layer { name: "mnist" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { scale: 0.00390625 } data_param { source: "test db" batch_size: 20 backend: LMDB } }
"""
BODY = """
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 4 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "pool1" top: "pool1" dropout_param { dropout_ratio: 0.1 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool1" top: "ip1"
  inner_product_param { num_output: 32 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
"""
LOSS = """
layer { name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""
DEPLOY = 'input: "data" input_shape { dim: 1 dim: 1 dim: 28 dim: 28 }' + BODY + \
    'layer { name: "prob" type: "Softmax" bottom: "ip2" top: "prob" }\n'
SOLVER = """net: "net.prototxt"
test_iter: 5 test_interval: 50 base_lr: 0.05 momentum: 0.9 weight_decay: 0.0005 lr_policy: "inv" gamma: 0.0001 power: 0.75
display: 20 random_seed: 5 snapshot_prefix: "%s" max_iter: %d snapshot: %d
"""


def write(name, data):
    with open(name, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def read(name):
    with open(name, "rb") as f:
        return f.read()


def image(draw, label):
    """A noisy image, whose rows 2 label + 4 and the next are bright."""
    return bytes(draw.randrange(60) + (180 if y // 2 - 2 == label else 0) for y in range(28) for _ in range(28))


def write_mnist(count, name, seed):
    draw = random.Random(seed)
    labels = bytes(draw.randrange(CLASSES) for _ in range(count))
    write("mnist/%s-images-idx3-ubyte" % name, struct.pack(">4I", 2051, count, 28, 28) + b"".join(image(draw, c) for c in labels))
    write("mnist/%s-labels-idx1-ubyte" % name, struct.pack(">2I", 2049, count) + labels)


def write_png(name, pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[28 * y:28 * y + 28] for y in range(28))
    write(name, b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)) +
          chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def run(*words, **options):
    """The lines of stderr and the text of stdout; the exit status must be `status`."""
    status = options.pop("status", 0)
    done = subprocess.run([GRADUS] + list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    log, out = done.stderr.decode(), done.stdout.decode()
    assert done.returncode == status, "gradus %s: %d\n%s%s" % (" ".join(words), done.returncode, log[-2000:], out)
    return log, out


def setup():
    os.makedirs("mnist")
    write_mnist(200, "train", 1)
    write_mnist(100, "t10k", 2)
    run("convert-mnist", "mnist/", "train é db", "--part", "train")
    run("convert-mnist", "mnist/", "test db", "--part=test")
    write("net.prototxt", NET + BODY + LOSS)
    write("deploy.prototxt", DEPLOY)
    write("solver.prototxt", SOLVER % ("a b/snap", 200, 0))
    os.makedirs("a b")


# --- training, testing, classifying

def test_a_training_is_read_by_parsers_of_logs_and_its_net_classifies():
    log, _ = run("train", "-solver=solver.prototxt", "-gpu", "-1")
    rates, losses, tests, iteration, stamps = {}, {}, {}, None, []
    for line in log.splitlines():
        prefix = re.match(r"I(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) +(\d+) (\S+):(\d+)\] ", line)
        if prefix:
            stamps.append([int(n) for n in prefix.groups()[:6]])
        found = re.search(r"Iteration (\d+)", line)
        if found:
            iteration = int(found.group(1))
        found = re.search(r"Iteration (\d+) \(\S+ iter/s, \S+s/\d+ iters\), loss = (\S+)", line)
        if found:
            losses[int(found.group(1))] = float(found.group(2))
        found = re.search(r"lr = ([-+]?[0-9]*\.?[0-9]+([eE]?[-+]?[0-9]+)?)", line)
        if found:
            rates[iteration] = float(found.group(1))
        found = re.search(r"Test net output #(\d+): (\S+) = ([\.\deE+-]+)", line)
        if found:
            tests[iteration, found.group(2)] = float(found.group(3))
        found = re.search(r"Train net output #(\d+): (\S+) = ([\.\deE+-]+)( \(\* 1 = ([\.\deE+-]+) loss\))?", line)
        if found:
            assert found.group(2) == "loss" and found.group(3) == found.group(5)
    assert sorted(losses) == list(range(0, 200, 20)), losses
    assert sorted(rates) == sorted(losses) and abs(rates[100] - 0.05 * 1.01 ** -0.75) < 1e-6, rates
    assert sorted(i for i, name in tests if name == "accuracy") == [0, 50, 100, 150, 200]
    assert tests[0, "accuracy"] < 0.5 and tests[200, "accuracy"] > 0.9 and losses[180] < losses[0] / 4, (tests, losses)
    assert len(stamps) > 30 and stamps == sorted(stamps)
    assert log.rstrip().endswith("Optimization Done.") and os.path.exists("a b/snap_iter_200.solverstate")

    shown, _ = run("test", "-model=net.prototxt", "-weights", "a b/snap_iter_200.caffemodel", "-iterations", "5", "-gpu=-1")
    found = re.search(r"\] accuracy = (\S+)", shown)
    assert found and abs(float(found.group(1)) - tests[200, "accuracy"]) < 1e-5, shown

    for label in range(CLASSES):
        write_png("%d.png" % label, image(random.Random(label + 50), label))
    write("names.txt", "".join("row %d\n" % i for i in range(CLASSES)))
    _, out = run("predict", "--model", "deploy.prototxt", "--weights", "a b/snap_iter_200.caffemodel", "--scale", "0.00390625",
                 "--classes", "names.txt", "--top", "1", "--json", *["%d.png" % i for i in range(CLASSES)])
    found = [json.loads(line) for line in out.strip().splitlines()]
    found = found[0] if isinstance(found[0], list) else found
    right = sum(one["top"][0]["class"] == "row %d" % i for i, one in enumerate(found))
    assert len(found) == CLASSES and right >= 9, out


def test_a_run_of_some_iterations_is_continued_from_its_snapshot():
    write("some.prototxt", SOLVER % ("some", 30, 10))
    log, _ = run("train", "--solver", "some.prototxt", "-iterations", "10")
    assert "Optimization Done." not in log and os.path.exists("some_iter_10.solverstate")
    log, _ = run("train", "--solver", "some.prototxt", "-snapshot=some_iter_10.solverstate")
    assert "Optimization Done." in log and os.path.exists("some_iter_30.caffemodel")
    run("train", "--solver", "some.prototxt", "--weights", "some_iter_10.caffemodel,some_iter_30.caffemodel")
    log, _ = run("train", "--solver", "some.prototxt", "--snapshot", "some_iter_10.solverstate", "--weights",
                 "some_iter_10.caffemodel", status=2)
    assert "two beginnings" in log


def test_stages_and_levels_choose_layers():
    write("stages.prototxt", SOLVER % ("stages", 2, 0) + "train_state { stage: 'own' }")
    layers = ''.join("layer { name: '%s' type: 'Dropout' bottom: 'ip2' top: 'ip2' include { phase: TRAIN %s } }\n" % layer for layer in (
        ("one", "stage: 'own' stage: 'one'"), ("two", "stage: 'two'"), ("three", "min_level: 3"), ("none", "stage: 'none'")))
    write("net.prototxt", NET + BODY + layers + LOSS)
    for words, names in (([], []), (["-stage=one,two"], ["one", "two"]), (["-level", "3"], ["three"])):
        run("train", "-solver=stages.prototxt", *words)
        found = [name for name in ("one", "two", "three", "none") if b"\n" + bytes([len(name)]) + name.encode() + b"\x12"
                 in read("stages_iter_2.caffemodel")]
        assert found == names, (words, found)
    write("net.prototxt", NET + BODY + LOSS)


def test_a_summary_has_the_layers_and_the_count_of_parameters():
    _, out = run("summary", "deploy.prototxt", "--json")
    shown = json.loads(out)
    assert shown["parameters"] == 4 * 25 + 4 + 4 * 36 * 32 + 32 + 32 * 10 + 10, out
    assert "conv1" in shown["table"] and "[1,4,12,12]" in shown["table"], shown["table"]
    _, out = run("summary", "net.prototxt", "--dummy", "data=1,28,28 label=10")
    assert "accuracy" in out
    log, _ = run("summary", "deploy.prototxt", "--input", "1,1,28,28", status=2)
    assert "--input is for nets that are not of Caffe" in log


def test_options_that_do_not_fit_are_refused():
    for words, message in ((["--epochs", "3"], "--epochs: the file of --solver settles it"),
                           (["--lr", "3"], "--lr: the file of --solver settles it"),
                           (["-gpu", "0,1"], "--gpu 0,1: a run uses one device"),
                           (["--gpu", "all"], "--gpu all: a run uses one device"),
                           (["--resume"], "--resume needs --checkpoints"),
                           (["-iterations", "0"], "--iterations is 0; it must be in [1, inf)")):
        log, _ = run("train", "--solver", "solver.prototxt", *words, status=2)
        assert message in log, log


def test_the_test_device_has_the_losses_of_the_cpu():
    if not os.environ.get("GRADUS_BACKEND_PATH"):
        return
    write("device.prototxt", SOLVER % ("device", 20, 0) + "test_initialization: false")
    lines = []
    for device in ("cpu", "test"):
        log, _ = run("train", "--solver", "device.prototxt", "--device", device)
        shown, _ = run("test", "--model", "net.prototxt", "--weights", "device_iter_20.caffemodel", "--device", device,
                       "--iterations", "5")
        lines.append(re.findall(r"(?:loss|accuracy) = \S+", log + shown))
    assert len(lines[0]) > 10 and lines[0] == lines[1], lines


# --- interruptions

def start(*words):
    return subprocess.Popen([GRADUS] + list(words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(condition, process):
    for _ in range(3000):
        if condition() or process.poll() is not None:
            return
        time.sleep(0.01)


def test_a_run_that_is_killed_at_random_times_ends_with_the_same_bytes():
    # the lines of a log make it slow enough to be killed
    text = SOLVER.replace("display: 20", "display: 1")
    write("whole.prototxt", text % ("whole", 600, 20))
    write("killed.prototxt", text % ("killed", 600, 20))
    begun = time.time()
    run("train", "--solver", "whole.prototxt", "--checkpoints", "whole.run")
    whole = time.time() - begun
    draw, kills, wanted = random.Random(4), 0, 20 if FULL else 6
    for attempt in range(20 * wanted):
        process = start("train", "--solver", "killed.prototxt", "--checkpoints", "killed.run", "--resume")
        if kills == wanted:
            assert process.wait() == 0
            break
        try:
            status = process.wait(timeout=draw.uniform(0, 0.5 + whole / 3))
            assert status == 0, status  # it has ended: begin again
            for name in os.listdir("killed.run"):
                os.remove(os.path.join("killed.run", name))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    assert kills == wanted
    for ending in ("caffemodel", "solverstate"):
        mine, theirs = read("killed_iter_600." + ending), read("whole_iter_600." + ending)
        assert mine.replace(b"killed", b"") == theirs.replace(b"whole", b"") or \
            (ending == "solverstate" and len(mine) == len(theirs) + 1), ending
    print("    %d kills" % kills)


def test_signals_write_snapshots():
    write("signals.prototxt", SOLVER % ("signals", 1000000, 0) + "test_initialization: false")
    process = start("train", "--solver", "signals.prototxt", "--checkpoints", "signals.run")

    def snapshots():
        return sorted(n for n in os.listdir(".") if re.match(r"signals_iter_\d+\.solverstate$", n))
    time.sleep(1)
    process.send_signal(signal.SIGHUP)
    wait_for(lambda: len(snapshots()) == 1, process)
    assert process.poll() is None and len(snapshots()) == 1, snapshots()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert len(snapshots()) == 2, snapshots()
    last = max(int(re.search(r"\d+", n).group()) for n in snapshots())
    log, _ = run("train", "--solver", "signals.prototxt", "--snapshot", "signals_iter_%d.solverstate" % last, "-iterations", "3")
    assert "Restoring" in log or "Iteration" in log


def test_a_full_disk_keeps_the_old_snapshot_and_names_the_file():
    write("full.prototxt", SOLVER % ("full", 20, 20))
    run("train", "--solver", "full.prototxt")
    before = read("full_iter_20.caffemodel"), read("full_iter_20.solverstate")

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))
    log, _ = run("train", "--solver", "full.prototxt", "--quiet", status=1, preexec_fn=limit)
    assert "full_iter_20.caffemodel" in log, log
    assert (read("full_iter_20.caffemodel"), read("full_iter_20.solverstate")) == before
    assert not [n for n in os.listdir(".") if "full_iter" in n and n not in
                ("full_iter_20.caffemodel", "full_iter_20.solverstate")], os.listdir(".")


def main():
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    with tempfile.TemporaryDirectory(prefix="gradus caffe ") as folder:
        os.chdir(folder)
        log = subprocess.run([GRADUS, "compute-mean", "nowhere"], stderr=subprocess.PIPE).stderr.decode()
        if "liblmdb" in log:
            print("skipped: gradus was built without liblmdb")
            return 77
        setup()
        for name, test in sorted(globals().items()):
            if name.startswith("test_") and wanted in name:
                begun = time.time()
                test()
                print("%s: %.1f s" % (name, time.time() - begun))
        os.chdir("/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
