#!/usr/bin/env python3
"""test_launches.py BENCH_DEVICE LIBRARIES - the column of launches of bench/versus_pytorch_cuda.py, on the emulated driver.

A step of two linear layers in bf16 launches kernels of its own and calls cuBLASLt. Each call of an op in its profile launches
one kernel or more, so the step has no fewer launches than calls.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM, LIBRARIES = sys.argv[1:3]
N, WIDTH, CLASSES = 64, 128, 64
LAYERS = f"flatten; linear in_features={WIDTH} out_features={WIDTH}; relu; linear in_features={WIDTH} out_features={CLASSES}"


def write_batch(path):
    """The weights and a batch as a safetensors file."""
    shapes = {"net.1.weight": [WIDTH, WIDTH], "net.1.bias": [WIDTH], "net.3.weight": [CLASSES, WIDTH],
              "net.3.bias": [CLASSES], "x": [N, WIDTH]}
    header, data = {}, b""
    for name, dims in shapes.items():
        count = dims[0] * (dims[1] if len(dims) > 1 else 1)
        values = struct.pack(f"<{count}f", *(((7 * i) % 11 - 5) / 100 for i in range(count)))
        header[name] = {"dtype": "F32", "shape": dims, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    header["y"] = {"dtype": "I64", "shape": [N], "data_offsets": [len(data), len(data) + 8 * N]}
    data += struct.pack(f"<{N}q", *(i % CLASSES for i in range(N)))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def run_step(mode):
    """The launches of a step, and the rows of its profile: (kernel, calls)."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "batch.safetensors")
        write_batch(path)
        ran = subprocess.run([PROGRAM, "--device", "cuda", "--net", LAYERS, "--file", path, "--mode", mode, "--autocast", "bf16"],
                             input="launches\nprofile\n", env=dict(os.environ, LD_LIBRARY_PATH=LIBRARIES), capture_output=True,
                             text=True)
    if ran.returncode != 0:
        raise AssertionError(ran.stderr or ran.stdout)
    lines = ran.stdout.splitlines()
    rows = [(line, int(line.split("cuda:0")[1].split()[0])) for line in lines if "cuda:0" in line]
    return int(lines[1]), rows


class Launches(unittest.TestCase):
    def check(self, mode):
        launches, rows = run_step(mode)
        library = sum(calls for line, calls in rows if "cublaslt" in line)
        self.assertGreaterEqual(library, 5, mode)  # two products forward, three backward
        self.assertGreaterEqual(launches, sum(calls for _, calls in rows), mode)
        return launches

    def test_launches_of_libraries_count(self):
        self.assertLessEqual(self.check("plan"), self.check("eager"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
