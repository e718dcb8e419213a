"""against_caffe.py - compares layers with Caffe on random shapes and options.

    against_caffe.py --program build/tests/run_layer [--type Pooling] [--family shapes] [--cases 100] [--seed 1]
                     [--modes eager,jit,test,saved,onnx] [--keep FOLDER]
    against_caffe.py --program ... --family shapes --record golden/shapes.txt --cases 3

It needs the packages kendryte-caffe and numpy. The generators of cases are in cases/*.py (case.py). Caffe
runs each case in a child process, because it aborts on bad input. The second form stores cases with Caffe's
results for the C tests, which read them with tests/harness/caffe_golden.c.
"""
import argparse
import collections
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import zlib

os.environ.setdefault("GLOG_minloglevel", "2")
os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from case import GENERATORS, Random, draw

STORED_VALUES = 24  # of a tensor in a recorded case; of a larger one every n-th is stored


def load_generators():
    for name in sorted(os.listdir(os.path.join(HERE, "cases"))):
        if name.endswith(".py") and not name.startswith("_"):
            importlib.import_module("cases." + name[:-3])


# --- Caffe ------------------------------------------------------------------------------------------------


class Given:
    """The tensors that a net is given, and how the drawn ones were made."""

    def __init__(self):
        self.arrays, self.drawn = collections.OrderedDict(), {}

    def add(self, name, value, scale=2.0):
        if hasattr(value, "dtype"):
            self.arrays[name] = np.asarray(value, np.float32)
        else:
            seed = zlib.crc32(name.encode()) % 1000003
            self.drawn[name] = (seed, scale)
            self.arrays[name] = draw(tuple(value), seed, scale)


def run_reference(case):
    """The same by a function of the case."""
    given = Given()
    for name, value in case.inputs.items():
        given.add("in:" + name, value)
    for (layer, i), value in case.blobs.items():
        given.add("blob:%s:%d" % (layer, i), value)

    def gradient(name, shape):
        given.add("grad:" + name, tuple(shape))
        return given.arrays["grad:" + name].astype(np.float64)

    results = case.reference({k: v.astype(np.float64) for k, v in given.arrays.items()}, gradient)
    return given, collections.OrderedDict((k, np.asarray(v, np.float32)) for k, v in results.items())


def run_caffe(case, path):
    """Given tensors and results; in the child process."""
    if case.reference:
        return run_reference(case)
    import caffe

    given, results = Given(), collections.OrderedDict()
    net = caffe.Net(path, caffe.TRAIN if case.phase == "TRAIN" else caffe.TEST)
    for name, value in case.inputs.items():
        given.add("in:" + name, value)
    for layer, blobs in net.params.items():
        for i, blob in enumerate(blobs):
            value = case.blobs.get((layer, i), tuple(blob.data.shape))
            if callable(value):
                value = value(tuple(blob.data.shape))
            given.add("blob:%s:%d" % (layer, i), value, case.scale)
            blob.data[...] = given.arrays["blob:%s:%d" % (layer, i)].reshape(blob.data.shape)
    for name in case.inputs:
        net.blobs[name].data[...] = given.arrays["in:" + name]
    net.forward()
    for name in net.outputs:
        results["top:" + name] = net.blobs[name].data.copy()
        if case.backward and name not in case.no_grad:
            given.add("grad:" + name, tuple(net.blobs[name].data.shape))
            net.blobs[name].diff[...] = given.arrays["grad:" + name]
        else:
            net.blobs[name].diff[...] = 0
    for layer, blobs in net.params.items():
        for i, blob in enumerate(blobs):
            results["after:%s:%d" % (layer, i)] = blob.data.copy()
    if case.backward:
        net.backward()
        for name in case.inputs:
            if name not in case.no_input_grad:
                results["gin:" + name] = net.blobs[name].diff.copy()
        for layer, blobs in net.params.items():
            for i, blob in enumerate(blobs):
                results["gblob:%s:%d" % (layer, i)] = blob.diff.copy()
    return given, results


def in_child(case, folder):
    """Runs Caffe; writes given.npz, drawn.txt and expected.npz. Returns whether Caffe has run the case."""
    child = os.fork()
    if child == 0:
        log = os.open(os.path.join(folder, "caffe.log"), os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            given, results = run_caffe(case, os.path.join(folder, "net.prototxt"))
            np.savez(os.path.join(folder, "given.npz"), **given.arrays)
            np.savez(os.path.join(folder, "expected.npz"), **results)
            with open(os.path.join(folder, "drawn.txt"), "w") as out:
                for name, (seed, scale) in given.drawn.items():
                    out.write("%s %d %r\n" % (name, seed, scale))
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def prepare(case, folder):
    os.makedirs(folder)
    with open(os.path.join(folder, "net.prototxt"), "w") as out:
        out.write(case.text())
    if case.phase == "TRAIN":
        open(os.path.join(folder, "train"), "w").close()
    if in_child(case, folder):
        return True
    given = Given()
    for name, value in case.inputs.items():
        given.add("in:" + name, value)
    np.savez(os.path.join(folder, "given.npz"), **given.arrays)
    return False


# --- the library ------------------------------------------------------------------------------------------


class Program:
    """run_layer, which reads the names of folders; it is started again if it dies."""

    def __init__(self, path, modes):
        self.path, self.modes, self.process = path, modes, None

    def run(self, folder):
        """Returns whether the program has survived."""
        if self.process is None:
            self.process = subprocess.Popen([self.path] + self.modes, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            universal_newlines=True)
        try:
            self.process.stdin.write(folder + "\n")
            self.process.stdin.flush()
            if self.process.stdout.readline().strip() == "done":
                return True
        except OSError:
            pass
        self.process.kill()
        self.process.wait()
        self.process = None
        return False


def differences(case, mode, folder):
    """What differs in a mode, as lines; empty: nothing."""
    message = os.path.join(folder, mode + ".txt")
    if os.path.exists(message):
        with open(message) as text:
            return ["%s: %s" % (mode, text.read())]
    lines = []
    want, have = np.load(os.path.join(folder, "expected.npz")), np.load(os.path.join(folder, mode + ".npz"))
    for name in have.files:
        if name.startswith("top:") and name not in want.files:
            lines.append("%s: Caffe has no %s" % (mode, name))
    for name in want.files:
        if mode == "onnx" and not name.startswith("top:"):
            continue
        b = want[name].astype(np.float64)
        if name not in have.files:
            if not name.startswith("g"):
                lines.append("%s: no %s" % (mode, name))
            elif np.any(b):
                lines.append("%s: no %s; Caffe's has values up to %g" % (mode, name, np.abs(b).max()))
            continue
        a = have[name].astype(np.float64)
        if a.size == b.size and "PERMISSIVE" in case.layers:
            a = a.reshape(b.shape)  # a shared blob has the shape of its first layer
        if a.shape != b.shape:
            lines.append("%s: %s has shape %s, not %s" % (mode, name, a.shape, b.shape))
            continue
        if a.size == 0:
            continue
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.abs(b[np.isfinite(b) & (np.abs(b) < 1e30)])
        limit = case.tolerance * (1 + (finite.max() if finite.size else 0))
        with np.errstate(invalid="ignore"):
            wrong = ~(same | (np.abs(a - b) <= limit) | ((np.abs(b) >= 1e30) & (np.abs(a - b) <= 1e-5 * np.abs(b))))
        if wrong.any():
            i = tuple(int(k[0]) for k in np.nonzero(wrong))
            lines.append("%s: %s%s is %.7g, not %.7g; %d of %d differ, by up to %g" %
                         (mode, name, list(i), a[i], b[i], wrong.sum(), a.size, np.abs(a - b)[wrong].max()))
    return lines


# --- recorded cases -----------------------------------------------------------------------------------------


def numbers_text(values):
    return " ".join("%.7g" % v for v in values)


def record(out, type_name, seed, case, folder):
    """caffe_golden.h describes the lines."""
    drawn = {}
    with open(os.path.join(folder, "drawn.txt")) as lines:
        for line in lines:
            name, draw_seed, scale = line.rsplit(" ", 2)
            drawn[name] = "%s %g" % (draw_seed, float(scale))
    out.write("case %s %d %s %g\n" % (type_name, seed, case.phase, case.tolerance))
    for line in case.text().splitlines():
        out.write("| %s\n" % line)
    with np.load(os.path.join(folder, "given.npz")) as given:
        for name in given.files:
            a = given[name]
            values = "draw " + drawn[name] if name in drawn else ": " + numbers_text(a.ravel())
            out.write("given %s %s %s\n" % (name, ",".join(str(d) for d in a.shape) or "-", values))
    with np.load(os.path.join(folder, "expected.npz")) as expected:
        for name in expected.files:
            a = expected[name]
            if name.startswith("after:"):
                before = np.load(os.path.join(folder, "given.npz"))["blob" + name[5:]]
                if np.array_equal(before.ravel(), a.ravel()):
                    continue
            step = -(-a.size // STORED_VALUES) or 1
            out.write("want %s %s %d : %s\n" % (name, ",".join(str(d) for d in a.shape) or "-", step,
                                                numbers_text(a.ravel()[::step])))
    out.write("end\n")


# --- all cases ----------------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=os.environ.get("GRADUS_RUN_LAYER"))
    parser.add_argument("--type", action="append")
    parser.add_argument("--family")
    parser.add_argument("--cases", type=int, help="of each type, instead of the number that the generator says")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the seed of one case, as failures print it")
    parser.add_argument("--modes", default="eager,jit,test,saved")
    parser.add_argument("--record")
    parser.add_argument("--keep")
    options = parser.parse_args()
    load_generators()
    try:
        import caffe  # so that children need not load it
    except ImportError:
        print("skipped: the package kendryte-caffe is not installed")
        return 77
    modes = options.modes.split(",")
    home = options.keep or tempfile.mkdtemp()
    program = Program(options.program, modes)
    counts, failed, refused = collections.OrderedDict(), collections.Counter(), collections.Counter()
    out = None
    if options.record:
        out = open(options.record, "w")
        out.write("# Results of Caffe, written by against_caffe.py --record; caffe_golden.h has the format.\n")
    for type_name, count, function, family in GENERATORS:
        if (options.type and type_name not in options.type) or (options.family and family != options.family):
            continue
        counts.setdefault(type_name, 0)
        for k in range(options.cases or count):
            seed = options.only if options.only is not None else options.seed * 10000 + k
            case = function(Random("%s %s %d" % (type_name, function.__name__, seed)))
            folder = os.path.join(home, "%s_%s_%d" % (type_name, function.__name__, seed))
            shutil.rmtree(folder, ignore_errors=True)
            ran = prepare(case, folder)
            counts[type_name] += 1
            lines = []
            if out:
                if ran:
                    record(out, type_name, seed, case, folder)
            elif not program.run(folder):
                lines = ["the program has died"]
            elif ran and case.refused:
                lines = ["Caffe runs a case that it should refuse"]
            elif ran:
                for mode in modes:
                    lines += differences(case, mode, folder)
            else:
                accepted = [m for m in modes if not os.path.exists(os.path.join(folder, m + ".txt"))]
                refused[type_name] += not accepted
                if accepted or not case.refused:
                    with open(os.path.join(folder, "caffe.log")) as log:
                        lines = ["Caffe refuses it: " + " ".join(log.read().splitlines()[:3])]
                if accepted:
                    lines.append("the library runs it")
            if lines:
                failed[type_name] += 1
                print("FAILED %s, %s --only %d (phase %s)\n%s" % (type_name, function.__name__, seed, case.phase,
                                                                  "\n".join("    " + l for l in lines)))
                print("".join("    | %s\n" % l for l in case.text().splitlines()))
            if not options.keep:
                shutil.rmtree(folder)
            if options.only is not None:
                break
    if out:
        out.close()
        return 0
    print("%-28s %6s %8s %7s" % ("type", "cases", "refused", "failed"))
    for type_name, count in counts.items():
        print("%-28s %6d %8d %7d" % (type_name, count, refused[type_name], failed[type_name]))
    print("%-28s %6d %8d %7d" % ("all", sum(counts.values()), sum(refused.values()), sum(failed.values())))
    return 1 if sum(failed.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
