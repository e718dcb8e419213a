"""against_opencv.py - compares SSD's layers with OpenCV, whose module dnn reads Caffe's files.

    against_opencv.py --program build/tests/run_layer [--type PriorBox] [--cases 100] [--seed 1]
                      [--record golden/ssd.txt]

It needs the packages opencv-python-headless (4, because 5 does not read Caffe's files) and numpy. The cases are in
opencv_cases.py; options that OpenCV lacks are compared with NumPy. Only outputs are compared.
"""
import argparse
import collections
import os
import struct
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from case import GENERATORS, Random
from against_caffe import Given, Program, differences, record
import opencv_cases  # noqa: F401, which fills GENERATORS


# --- a .caffemodel ----------------------------------------------------------------------------------------


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def caffemodel(given):
    """The blobs of a case as a NetParameter."""
    layers = collections.OrderedDict()
    for name, a in given.items():
        if name.startswith("blob:"):
            shape = b"".join(varint(d) for d in a.shape or (1,))
            data = a.astype("<f4").tobytes()
            layers.setdefault(name.split(":")[1], []).append(field(7, field(7, field(1, shape)) + field(5, data)))
    return b"".join(field(100, field(1, n.encode()) + b"".join(blobs)) for n, blobs in layers.items())


# --- expected outputs -------------------------------------------------------------------------------------


def without_padding(rows):
    """OpenCV's DetectionOutput has rows up to keep_top_k for each image; those after the last box are 0."""
    rows = rows.reshape(-1, 7)
    used = np.nonzero(rows[:, 1:].any(1))[0]
    rows = rows[:used[-1] + 1 if len(used) else 0]
    return rows.reshape(1, 1, -1, 7)


def run_opencv(case, folder, given):
    import cv2

    path = os.path.join(folder, "net.prototxt")
    model = caffemodel(given.arrays)
    if model:
        with open(os.path.join(folder, "net.caffemodel"), "wb") as out:
            out.write(model)
    net = cv2.dnn.readNetFromCaffe(path, os.path.join(folder, "net.caffemodel")) if model else \
        cv2.dnn.readNetFromCaffe(path)
    for name in case.inputs:
        net.setInput(given.arrays["in:" + name], name)
    y = net.forward()
    return without_padding(y) if "DetectionOutput" in case.layers else y


def expect(case, folder):
    """Writes the files of a case (against_caffe.py). Returns False if there is nothing to compare with."""
    os.makedirs(folder)
    with open(os.path.join(folder, "net.prototxt"), "w") as out:
        out.write(case.text())
    given = Given()
    for name, value in case.inputs.items():
        given.add("in:" + name, value)
    for (name, number), value in case.blobs.items():
        given.add("blob:%s:%d" % (name, number), value)
    results = case.numpy(given.arrays) if hasattr(case, "numpy") else None
    y = results["y"] if results else run_opencv(case, folder, given)
    if y.size == 0:
        return False
    np.savez(os.path.join(folder, "expected.npz"), **{"top:y": y})
    np.savez(os.path.join(folder, "given.npz"), **given.arrays)
    with open(os.path.join(folder, "drawn.txt"), "w") as out:
        for name, (seed, scale) in given.drawn.items():
            out.write("%s %d %r\n" % (name, seed, scale))
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=os.environ.get("GRADUS_RUN_LAYER"))
    parser.add_argument("--type")
    parser.add_argument("--cases", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--record")
    options = parser.parse_args()
    modes = ["eager", "jit", "test"]
    home = tempfile.mkdtemp()
    program = Program(options.program, modes)
    counts, failed = collections.OrderedDict(), collections.Counter()
    out = open(options.record, "w") if options.record else None
    if out:
        out.write("# Results of OpenCV, written by against_opencv.py --record; caffe_golden.h has the format.\n")
    for type_name, count, function, _ in GENERATORS:
        if options.type and options.type != type_name:
            continue
        counts.setdefault(type_name, 0)
        for k in range(options.cases or count):
            seed = options.only if options.only is not None else options.seed * 10000 + k
            case = function(Random("%s %s %d" % (type_name, function.__name__, seed)))
            folder = os.path.join(home, "%s_%s_%d" % (type_name, function.__name__, seed))
            if not expect(case, folder):
                continue
            counts[type_name] += 1
            if out:
                record(out, type_name, seed, case, folder)
            elif not program.run(folder):
                lines = ["the program has died"]
            else:  # boxes are found on the host, so a net that finds some has no plan
                lines = []
                for mode in modes:
                    if mode != "jit" or type_name != "DetectionOutput":
                        lines += differences(case, mode, folder)
            if not out and lines:
                failed[type_name] += 1
                print("FAILED %s, %s --only %d\n%s" % (type_name, function.__name__, seed,
                                                       "\n".join("    " + line for line in lines)))
                print("".join("    | %s\n" % line for line in case.text().splitlines()))
            if options.only is not None:
                break
    if out:
        out.close()
        return 0
    print("%-28s %6s %7s" % ("type", "cases", "failed"))
    for type_name, count in counts.items():
        print("%-28s %6d %7d" % (type_name, count, failed[type_name]))
    print("%-28s %6d %7d" % ("all", sum(counts.values()), sum(failed.values())))
    return 1 if sum(failed.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
