"""saved_against_caffe.py - files of gd_caffe_save_net and gd_caffe_save: Caffe and OpenCV read them, and give the
outputs of the module that was saved.

    saved_against_caffe.py [--program build/tests/save_nets] [--readers caffe,opencv] [--keep FOLDER]

The nets are those of save_nets.c, and those of nets/, which have all types of layers of deploy nets. The random cases of
cases/*.py cover their options (against_caffe.py --modes saved).
"""
import argparse
import glob
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("GLOG_minloglevel", "2")
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
NOT_IN_OPENCV = {"types"}  # Bias, Log, Threshold, ArgMax and others


def run_caffe(stem, x):
    import caffe

    net = caffe.Net(stem + ".prototxt", stem + ".caffemodel", caffe.TEST)
    net.blobs[net.inputs[0]].reshape(*x.shape)
    net.blobs[net.inputs[0]].data[...] = x
    net.forward()
    return [net.blobs[name].data for name in sorted(net.outputs)]


def run_opencv(stem, x):
    import cv2

    net = cv2.dnn.readNetFromCaffe(stem + ".prototxt", stem + ".caffemodel")
    net.setInput(x)
    names = [name for name in net.getUnconnectedOutLayersNames() if not name.endswith("/silence")]
    return [net.forward()] if len(names) == 1 else net.forward(sorted(names))


READERS = {"caffe": run_caffe, "opencv": run_opencv}


def check(stem, reader):
    """The largest relative difference, or a text that says what differs. A child process: Caffe aborts."""
    x = np.load(stem + "_in.npy")
    have = READERS[reader](stem, x)
    want = [np.load(stem + "_out_%d.npy" % i) for i in range(len(glob.glob(stem + "_out_*.npy")))]
    if len(have) != len(want):
        return "%d outputs, not %d" % (len(have), len(want))
    worst = 0
    for a, b in zip(have, want):
        if a.shape != b.shape and a.size != b.size:
            return "shapes %s and %s" % (a.shape, b.shape)
        worst = max(worst, float(np.abs(a.reshape(b.shape) - b).max() / max(np.abs(b).max(), 1e-3)))
    return worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=os.environ.get("GRADUS_SAVE_NETS"))
    parser.add_argument("--readers", default="caffe,opencv")
    parser.add_argument("--keep", help="a folder for the files")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print("result", check(*options.one))
        return 0
    folder = options.keep or tempfile.mkdtemp()
    subprocess.run([options.program, folder] + sorted(glob.glob(os.path.join(HERE, "nets", "*.prototxt"))), check=True)
    failed = 0
    for path in sorted(glob.glob(os.path.join(folder, "*.prototxt"))):
        stem = path[:-len(".prototxt")]
        name = os.path.basename(stem)
        for reader in options.readers.split(","):
            if reader == "opencv" and name in NOT_IN_OPENCV:
                continue
            done = subprocess.run([sys.executable, __file__, "--one", stem, reader], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, universal_newlines=True)
            lines = [line for line in done.stdout.splitlines() if line.startswith("result ")]
            result = lines[0][7:] if lines else done.stdout[-2000:]
            good = bool(lines) and result[0].isdigit() and " " not in result and float(result) < 1e-5
            failed += not good
            print("%-10s %-7s %s%s" % (name, reader, result, "" if good else "  WRONG"))
    return failed


if __name__ == "__main__":
    sys.exit(main())
