#!/usr/bin/env python3
"""Compares transforms with those of torchvision, in alternating rounds on one thread of the same machine.

    python bench/versus_torchvision.py [build/bench/bench]

The chains are those of bench/transforms.c, on u8 tensors on both sides. Prints the medians of the times and of the ratios.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch

for name in ("nms", "qnms", "deform_conv2d"):  # torchvision looks for its compiled ops, which transforms do not need
    try:
        getattr(torch.ops.torchvision, name)
    except (AttributeError, RuntimeError):
        torch.library.define(f"torchvision::{name}", "(Tensor x) -> Tensor")
from torchvision.transforms import v2

ROUNDS = 7
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
to_float = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
CHAINS = {
    "transforms.small": ((3, 32, 32), [v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), *to_float]),
    "transforms.large": ((3, 375, 500), [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(),
                                         v2.ColorJitter(0.4, 0.4, 0.4, 0.1), *to_float]),
}


def theirs(shape, steps):
    x = torch.randint(0, 256, shape, dtype=torch.uint8)
    chain = v2.Compose(steps)
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < 0.3:
        chain(x)
        count += 1
    return (time.perf_counter() - start) / count * 1e6


def ours(program, name):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        subprocess.run([program, "--out", path, name], check=True, stdout=subprocess.DEVNULL)
        with open(path) as lines:
            for line in lines:
                row = json.loads(line)
                if row.get("name") == name:
                    return row["value"]
    raise SystemExit(f"{program} did not report {name}")


torch.set_num_threads(1)
program = sys.argv[1] if len(sys.argv) > 1 else "build/bench/bench"
for name, (shape, steps) in CHAINS.items():
    theirs(shape, steps)
    pairs = [(ours(program, name), theirs(shape, steps)) for _ in range(ROUNDS)]
    a, b = (statistics.median(column) for column in zip(*pairs))
    ratio = statistics.median(y / x for x, y in pairs)
    print(f"{name:20} {a:9.1f} us Gradus {b:9.1f} us torchvision   {ratio:.1f} times as fast")
