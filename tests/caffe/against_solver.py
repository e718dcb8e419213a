"""against_solver.py - trains with solvers of Caffe, there and here, and compares losses, weights and snapshots.

    against_solver.py --program build/tests/run_solver [--only NAME] [--keep FOLDER]
    against_solver.py --program build/tests/run_solver --record tests/golden

It needs the packages kendryte-caffe and numpy. Every solver and every rate policy runs 200 iterations from the same weights,
across the end of the data, on an LMDB that run_solver has written. Then both sides continue from the snapshot at 100 iterations
of the other one. Losses and outputs of tests are read from the logs, with the expressions of Caffe's own parser.

The second form writes Caffe's runs of 20 iterations for tests/unit/caffe/test_caffe_solver.c: caffe_solver.txt, and
caffe_solver.caffemodel, the weights that they start from.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

LIMIT = 1e-4
ITERATIONS, SNAPSHOT = 200, 100

NET = """name: "small"
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
        data_param { source: "train_lmdb" batch_size: 8 backend: LMDB } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
        data_param { source: "heldout_lmdb" batch_size: 7 backend: LMDB } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "ip1" type: "InnerProduct" bottom: "conv1" top: "ip1" param { decay_mult: 2 } param { lr_mult: 0.5 }
        inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "tanh" type: "TanH" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 4
        weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "quality" type: "Accuracy" bottom: "ip2" bottom: "label" top: "quality" accuracy_param { top_k: 2 }
        include { phase: TEST stage: "more" } }
"""
# Statistics, which are blobs without rates (the package kendryte-caffe uses those of the blobs in training, too); parameters that two layers share; a layer that no loss reaches.
NORM = NET.split('layer { name: "conv1"')[0] + """
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" convolution_param { num_output: 4 kernel_size: 3
        bias_term: false weight_filler { type: "xavier" } } }
layer { name: "bn1" type: "BatchNorm" bottom: "conv1" top: "conv1" batch_norm_param { moving_average_fraction: 0.9 use_global_stats: true eps: 1 } }
layer { name: "scale1" type: "Scale" bottom: "conv1" top: "conv1" param { decay_mult: 0 } scale_param { bias_term: true } }
layer { name: "relu1" type: "PReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool1" top: "ip1" inner_product_param { num_output: 4
        weight_filler { type: "xavier" } } }
layer { name: "side" type: "InnerProduct" bottom: "pool1" top: "side" inner_product_param { num_output: 2
        weight_filler { type: "xavier" } } }
layer { name: "quiet" type: "Silence" bottom: "side" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "loss" }
"""
SHARED = NET.split('layer { name: "conv1"')[0] + """
layer { name: "a" type: "InnerProduct" bottom: "data" top: "a" param { name: "w" lr_mult: 2 } param { name: "b" }
        inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "negative" type: "Power" bottom: "data" top: "negative" power_param { scale: -0.5 shift: 0.1 } }
layer { name: "c" type: "InnerProduct" bottom: "negative" top: "c" param { name: "w" } param { name: "b" }
        inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "both" type: "Concat" bottom: "a" bottom: "c" top: "both" }
layer { name: "act" type: "Sigmoid" bottom: "both" top: "both" }
layer { name: "ip" type: "InnerProduct" bottom: "both" top: "ip" param { lr_mult: 0 decay_mult: 0 } inner_product_param { num_output: 4
        weight_filler { type: "gaussian" std: 0.5 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" loss_weight: 0.5 }
"""
NETS = {"net.prototxt": NET, "norm.prototxt": NORM, "shared.prototxt": SHARED}
COMMON = """net: "net.prototxt"
max_iter: %d display: 1 average_loss: 3 test_iter: 5 test_interval: 50 snapshot: %d snapshot_prefix: "%%s"
solver_mode: CPU random_seed: 3
""" % (ITERATIONS, SNAPSHOT)
SGD = 'type: "SGD" base_lr: 0.02 momentum: 0.9 weight_decay: 0.005 '
CASES = {
    "sgd": SGD + 'lr_policy: "fixed"',
    "sgd_plain": 'base_lr: 0.05 lr_policy: "fixed"',
    "sgd_l1": 'type: "SGD" base_lr: 0.02 momentum: 0.9 weight_decay: 0.0005 lr_policy: "fixed" regularization_type: "L1"',
    "sgd_clip": SGD + 'lr_policy: "fixed" clip_gradients: 0.5',
    "sgd_iter_size": SGD + 'lr_policy: "fixed" iter_size: 3',
    "sgd_clip_iter_size": SGD + 'lr_policy: "fixed" iter_size: 2 clip_gradients: 0.7',
    "nesterov": 'type: "Nesterov" base_lr: 0.02 momentum: 0.9 weight_decay: 0.005 lr_policy: "fixed"',
    "nesterov_plain": 'type: "Nesterov" base_lr: 0.05 lr_policy: "step" gamma: 0.5 stepsize: 40',
    "adagrad": 'type: "AdaGrad" base_lr: 0.02 weight_decay: 0.005 delta: 1e-6 lr_policy: "fixed"',
    "rmsprop": 'type: "RMSProp" base_lr: 0.002 rms_decay: 0.95 weight_decay: 0.005 delta: 1e-4 lr_policy: "fixed"',
    "adadelta": 'type: "AdaDelta" base_lr: 1 momentum: 0.95 weight_decay: 0.005 delta: 1e-6 lr_policy: "fixed"',
    "adam": 'type: "Adam" base_lr: 0.002 momentum: 0.9 momentum2: 0.999 weight_decay: 0.005 delta: 1e-6 lr_policy: "fixed"',
    "adam_step": 'type: "Adam" base_lr: 0.004 momentum: 0.9 lr_policy: "step" gamma: 0.3 stepsize: 70 delta: 1e-4',
    "adam_l1": 'type: "Adam" base_lr: 0.002 momentum: 0.9 weight_decay: 0.002 lr_policy: "fixed" regularization_type: "L1" '
               'delta: 1e-4',
    "old_type": 'solver_type: NESTEROV base_lr: 0.02 momentum: 0.9 lr_policy: "fixed"',
    "step": SGD + 'lr_policy: "step" gamma: 0.5 stepsize: 30',
    "exp": SGD + 'lr_policy: "exp" gamma: 0.99',
    "inv": SGD + 'lr_policy: "inv" gamma: 0.01 power: 0.75',
    "multistep": SGD + 'lr_policy: "multistep" gamma: 0.4 stepvalue: 20 stepvalue: 90 stepvalue: 150',
    "poly": SGD + 'lr_policy: "poly" power: 1.5',
    "sigmoid": SGD + 'lr_policy: "sigmoid" gamma: 0.03 stepsize: 100',
    "snapshot_diff": SGD + 'lr_policy: "fixed" snapshot_diff: true',
    "norm": SGD + 'lr_policy: "fixed" iter_size: 2',
    "norm_adam": 'type: "Adam" base_lr: 0.002 momentum: 0.9 weight_decay: 0.01 lr_policy: "fixed" delta: 1e-4',
    "shared": SGD + 'lr_policy: "fixed"',
    "shared_adagrad": 'type: "AdaGrad" base_lr: 0.02 weight_decay: 0.005 delta: 1e-3 lr_policy: "fixed"',
    "debug_info": SGD + 'lr_policy: "fixed" iter_size: 2 debug_info: true',
    "hdf5": SGD + 'lr_policy: "fixed" snapshot_format: HDF5',
    "hdf5_adam": 'type: "Adam" base_lr: 0.002 momentum: 0.9 lr_policy: "step" gamma: 0.5 stepsize: 30 delta: 1e-4 '
                 'snapshot_format: HDF5 snapshot_diff: true',
    "two_tests": SGD + 'lr_policy: "fixed" test_iter: 3 test_state { } test_state { stage: "more" } test_compute_loss: true',
}

CAFFE = """
import sys, caffe
caffe.set_mode_cpu()
solver = caffe.get_solver(sys.argv[1])
if sys.argv[2] == "init":
    solver.net.save(sys.argv[3])
    sys.exit()
if sys.argv[2] == "weights":
    solver.net.copy_from(sys.argv[3])
if sys.argv[2] == "snapshot":
    solver.solve(sys.argv[3])
else:
    solver.solve()
"""


def run(command, log, cwd):
    with open(os.path.join(cwd, log), "w") as to:
        done = subprocess.run(command, cwd=cwd, stderr=to, stdout=subprocess.PIPE, universal_newlines=True,
                              env=dict(os.environ, OMP_NUM_THREADS="1"))
    return done.returncode, done.stdout


def caffe(home, solver, log, *arguments):
    return run([sys.executable, "-c", CAFFE, solver] + list(arguments), log, home)


def read_log(path):
    """What the log says of each iteration: the loss, the rate, the outputs of tests."""
    found, iteration = {}, None
    with open(path) as lines:
        for line in lines:
            number = re.search(r"Iteration (\d+)", line)
            if number:
                iteration = int(number.group(1))
            for name, pattern in (("loss", r"Iteration \d+.*, loss = (\S+)"), ("lr", r"lr = (\S+)"),
                                  ("test loss", r"Test loss: (\S+)")):
                value = re.search(pattern, line)
                if value:
                    found.setdefault((iteration, name), []).append(float(value.group(1)))
            debug = re.search(r"\[(Forward|Backward)\] (Layer .*): (\S+)$", line)
            if debug and "_split" not in line:
                found.setdefault(debug.groups()[:2], []).append(float(debug.group(3)))
            output = re.search(r"(Train|Test) net output #(\d+): (\S+) = (\S+)", line)
            if output:
                found.setdefault((iteration,) + output.groups()[:3], []).append(float(output.group(4)))
    return found


def read_hdf5(path):
    import h5py
    import numpy as np

    found = {}
    with h5py.File(path, "r") as f:
        f.visititems(lambda name, d: found.update({name: np.array(d, np.float64)}) if hasattr(d, "dtype") and d.dtype.kind in "fiu"
                     else None)
    return found


def read_blobs(path):
    import numpy as np
    from caffe.proto import caffe_pb2

    if path.endswith(".h5"):
        return read_hdf5(path)
    message = caffe_pb2.SolverState() if path.endswith("solverstate") else caffe_pb2.NetParameter()
    with open(path, "rb") as data:
        message.ParseFromString(data.read())
    if path.endswith("solverstate"):
        blobs = {"history %d" % i: b for i, b in enumerate(message.history)}
        blobs["numbers"] = None
        return {k: np.array([message.iter, message.current_step]) if b is None else np.array(b.data) for k, b in blobs.items()}
    found = {}
    for layer in message.layer:
        for i, b in enumerate(layer.blobs):
            found["%s %d" % (layer.name, i)] = np.array(b.data)
            if b.diff:
                found["%s %d diff" % (layer.name, i)] = np.array(b.diff)
    return found


def compare_blobs(what, ours, theirs, limit=LIMIT):
    import numpy as np

    a, b = read_blobs(ours), read_blobs(theirs)
    if a.keys() != b.keys():
        return ["%s: has %s, not %s" % (what, sorted(a), sorted(b))]
    return ["%s: %s differs by %g" % (what, k, np.abs(a[k] - b[k]).max()) for k in b
            if a[k].shape != b[k].shape or not np.abs(a[k] - b[k]).max() <= limit * (1 + np.abs(b[k]).max())]


def compare_logs(what, ours, theirs):
    a, b = read_log(ours), read_log(theirs)
    lines = ["%s: the log has no %s" % (what, (k,)) for k in b if k not in a]
    lines += ["%s: Caffe's log has no %s" % (what, (k,)) for k in a if k not in b]
    for k in b:
        if k in a and (len(a[k]) != len(b[k]) or any(abs(x - y) > LIMIT * (1 + abs(y)) for x, y in zip(a[k], b[k]))):
            lines.append("%s: %s is %s, not %s" % (what, (k,), a[k], b[k]))
    return lines[:5]


def net_of(name, common):
    """The fields for the net of a case: that of its first word, if there is one."""
    net = name.split("_")[0] + ".prototxt"
    return common.replace('"net.prototxt"', '"%s"' % net) if net in NETS else common


def check(program, home, name, fields, momentum):
    """What differs, as lines."""
    lines = []
    h5 = ".h5" if "HDF5" in fields else ""
    path = lambda side, n, ending: os.path.join(home, "%s_%s_iter_%d.%s%s" % (name, side, n, ending, h5))
    for side in ("ours", "caffe", "ours2", "caffe2"):
        with open(os.path.join(home, "%s_%s.prototxt" % (name, side)), "w") as to:
            to.write(net_of(name, COMMON) % (name + "_" + side) + fields + "\n")
    solver = lambda side: "%s_%s.prototxt" % (name, side)
    log = lambda side: "%s_%s.log" % (name, side)
    init = name.split("_")[0] + ".caffemodel" if net_of(name, COMMON) != COMMON else "init.caffemodel"
    code, _ = caffe(home, solver("caffe"), log("caffe"), "weights", init)
    if code:
        return ["Caffe failed: see %s" % log("caffe")]
    code, message = run([program, "train", solver("ours"), "weights=" + init], log("ours"), home)
    if code:
        return [message]
    lines += compare_logs("200 iterations", os.path.join(home, log("ours")), os.path.join(home, log("caffe")))
    for n in (SNAPSHOT, ITERATIONS):
        lines += compare_blobs("weights at %d" % n, path("ours", n, "caffemodel"), path("caffe", n, "caffemodel"))
        if momentum:
            lines += compare_blobs("state at %d" % n, path("ours", n, "solverstate"), path("caffe", n, "solverstate"))
    # each continues what the other has begun, and the result is that of continuing one's own
    for side, state in (("ours2", "caffe"), ("caffe2", "ours")):
        from_state = os.path.basename(path(state, SNAPSHOT, "solverstate"))
        if side == "ours2":
            code, message = run([program, "train", solver(side), "snapshot=" + from_state], log(side), home)
        else:
            code, message = caffe(home, solver(side), log(side), "snapshot", from_state)
        if code:
            return lines + ["continuing from %s failed: %s" % (from_state, message)]
    lines += compare_logs("continued", os.path.join(home, log("ours2")), os.path.join(home, log("caffe2")))
    lines += compare_blobs("weights continued", path("ours2", ITERATIONS, "caffemodel"),
                           path("caffe2", ITERATIONS, "caffemodel"))
    return lines


def record(program, home, folder):
    """Losses of 20 iterations, those from 10 on continued from a snapshot, and the sum of |weights| at the end."""
    import numpy as np

    common = COMMON.replace("max_iter: %d" % ITERATIONS, "max_iter: 20").replace("test_interval: 50", "test_interval: 10")
    common = common.replace("snapshot: %d" % SNAPSHOT, "snapshot: 10").replace("average_loss: 3", "average_loss: 1")
    with open(os.path.join(folder, "caffe_solver.txt"), "w") as out:
        out.write("# Runs of Caffe, 20 iterations each, written by tests/caffe/against_solver.py --record. A solver has its fields, its\n"
                  "# losses, its losses continued from the snapshot at 10 iterations, the outputs of its tests (0, 10 and 20\n"
                  "# iterations), and the sum of the absolute values of all weights at the end.\n")
        out.write("common %s\n" % " ".join((common % "snap").split("\n")))
        for line in NET.strip().split("\n"):
            out.write("net %s\n" % line)
        for name, fields in CASES.items():
            if net_of(name, COMMON) != COMMON:
                continue
            with open(os.path.join(home, "record.prototxt"), "w") as to:
                to.write(common % "snap" + fields + "\n")
            caffe(home, "record.prototxt", "record.log", "weights", "init.caffemodel")
            h5 = ".h5" if "HDF5" in fields else ""
            last = read_blobs(os.path.join(home, "snap_iter_20.caffemodel" + h5))
            caffe(home, "record.prototxt", "record2.log", "snapshot", "snap_iter_10.solverstate" + h5)
            one, two = read_log(os.path.join(home, "record.log")), read_log(os.path.join(home, "record2.log"))
            text = lambda values: " ".join("%.6g" % v for v in values)
            out.write("solver %s\nfields %s\n" % (name, fields))
            out.write("losses %s\n" % text(one[(i, "loss")][0] for i in range(20)))
            out.write("again %s\n" % text(two[(i, "loss")][0] for i in range(10, 20)))
            out.write("tests %s\n" % text(one[(i, "Test", "1", "loss")][0] for i in (0, 10, 20)))
            out.write("sum %.7g\n" % sum(np.abs(v.astype(np.float64)).sum() for k, v in last.items() if "diff" not in k))
    shutil.copy(os.path.join(home, "init.caffemodel"), os.path.join(folder, "caffe_solver.caffemodel"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=os.environ.get("GRADUS_RUN_SOLVER"))
    parser.add_argument("--only")
    parser.add_argument("--keep")
    parser.add_argument("--record")
    options = parser.parse_args()
    try:
        import caffe as package  # noqa: F401
    except ImportError:
        print("skipped: the package kendryte-caffe is not installed")
        return 77
    program = os.path.abspath(options.program)
    home = options.keep or tempfile.mkdtemp()
    os.makedirs(home, exist_ok=True)
    for folder, count in (("train_lmdb", 53), ("heldout_lmdb", 30)):
        if not os.path.exists(os.path.join(home, folder)):
            code, message = run([program, "database", folder, str(count), str(count)], folder + ".log", home)
            if code:
                print(message)
                return 77 if "liblmdb" in message else 1
    for net, text in NETS.items():
        name = net.split(".")[0].replace("net", "init")
        with open(os.path.join(home, net), "w") as to:
            to.write(text)
        with open(os.path.join(home, "first.prototxt"), "w") as to:
            to.write(net_of(name, COMMON) % "first" + CASES["sgd"])
        caffe(home, "first.prototxt", "first.log", "init", name + ".caffemodel")
    if options.record:
        record(program, home, options.record)
        return 0
    failed = 0
    for name, fields in CASES.items():
        if options.only and name != options.only:
            continue
        plain = "momentum" not in fields and ("SGD" in fields or "Nesterov" in fields or "type" not in fields)
        lines = check(program, home, name, fields, not plain)
        print("%s: %s" % (name, "differs" if lines else "fine"))
        for line in lines:
            print("    " + line)
        failed += bool(lines)
    print("%d of %d solvers differ" % (failed, 1 if options.only else len(CASES)))
    if not options.keep:
        shutil.rmtree(home)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
