"""plates.py - four trained nets of Caffe, which read number plates, give OpenCV's outputs, and ONNX Runtime gives the
same from the files that the library writes. The nets are in the package hyperlpr: one is an SSD, one has f16 weights.

    plates.py [--program build/tests/run_net]

It also needs the packages opencv-python-headless (4), onnxruntime and numpy.
"""
import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tempfile

import numpy as np

NETS = ["HorizonalFinemapping", "SegmenationFree-Inception", "refinenet", "mininet_ssd_v1"]
BEFORE_BOXES = ["ssd0_concat1", "flatten0", "concat0"]  # what the SSD's last layer reads
LIMIT = 1e-4


def folder_of_nets():
    for place in (sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]):
        folder = os.path.join(place, "hyperlpr", "models", "dnn")
        if os.path.isdir(folder):
            return folder
    sys.exit("the package hyperlpr has no nets")


def image(text, seed):
    """A random image of the size of the net's input, from 0 to 1."""
    sizes = re.findall(r"input_dim:\s*(\d+)", text) or re.findall(r"dim:\s*(\d+)", text)
    return np.random.RandomState(seed).rand(*[int(n) for n in sizes[:4]]).astype(np.float32)


class Check:
    def __init__(self):
        self.failures = self.count = 0

    def same(self, what, have, want):
        if want.shape[-1:] == (7,) and want.ndim == 4:  # boxes: OpenCV appends rows of zeros
            want = want[:, :, :have.shape[2]] if not want[:, :, have.shape[2]:].any() else want
        distance = np.abs(have - want.reshape(have.shape)).max() if have.size == want.size else np.inf
        self.count += 1
        self.failures += not distance <= LIMIT
        print("%-60s %-18s %s" % (what, have.shape, "%.2g" % distance))


def check_net(check, program, folder, name, outputs, modes):
    import cv2
    import onnxruntime

    net, weights = (os.path.join(folder, name + end) for end in (".prototxt", ".caffemodel"))
    with open(net) as text:
        x = image(text.read(), 3)
    reader = cv2.dnn.readNetFromCaffe(net, weights)
    reader.setInput(x, "data")
    want = reader.forward(outputs or reader.getUnconnectedOutLayersNames())
    with tempfile.TemporaryDirectory() as home:
        np.save(os.path.join(home, "x.npy"), x)
        for mode in modes:
            command = [program, mode, net, weights, os.path.join(home, "x.npy"), home] + [" ".join(outputs)] * bool(outputs)
            run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
            if run.returncode:
                check.count += 1
                check.failures += 1
                print("%s, %s: %s" % (name, mode, run.stdout))
                continue
            if mode == "onnx":
                session = onnxruntime.InferenceSession(os.path.join(home, "net.onnx"), providers=["CPUExecutionProvider"])
                have = session.run(None, {session.get_inputs()[0].name: x})
            else:
                have = [np.load(os.path.join(home, "%s_%d.npy" % (mode, i))) for i in range(len(want))]
            for i, (a, b) in enumerate(zip(have, want)):
                check.same("%s, %s, output %d" % (name, mode, i), a, b)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=os.environ.get("GRADUS_RUN_NET"))
    program = parser.parse_args().program
    check, folder = Check(), folder_of_nets()
    for name in NETS:
        if name == "mininet_ssd_v1":
            check_net(check, program, folder, name, [], ["eager", "test"])
            check_net(check, program, folder, name, BEFORE_BOXES, ["jit", "onnx"])
        else:
            check_net(check, program, folder, name, [], ["eager", "jit", "test", "onnx"])
    print("%d outputs, %d differ" % (check.count, check.failures))
    return 1 if check.failures or not check.count else 0


if __name__ == "__main__":
    sys.exit(main())
