#!/usr/bin/env python3
"""Compares the time per sample of a loader with PyTorch's DataLoader, in alternating rounds on the same machine.

    python bench/loader_peer.py [build/bench/bench]

Needs PyTorch. The dataset has 51200 rows of 32 floats and a class each, in tensors (TensorDataset in PyTorch), in batches of 64
without workers. Prints the nanoseconds per sample, and the time of PyTorch as a multiple of that of Gradus.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

ROWS, WIDTH, BATCH, ROUNDS = 51200, 32, 64, 5


class Samples(Dataset):
    """A user-defined dataset, which is read one sample at a time."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def theirs():
    x, y = torch.randn(ROWS, WIDTH), torch.zeros(ROWS, dtype=torch.int64)
    loaders = {
        "loader_rows": DataLoader(TensorDataset(x, y), batch_size=BATCH),
        "loader_rows_shuffled": DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True),
        "loader_samples": DataLoader(Samples(x, y), batch_size=BATCH, shuffle=True),
    }
    times = {}
    for name, loader in loaders.items():
        begin = time.perf_counter()
        for _ in loader:
            pass
        times[name] = (time.perf_counter() - begin) * 1e9 / ROWS
    return times


def ours(program):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "results.json")
        subprocess.run([program, "--out", out, "loader_overhead"], check=True, stdout=subprocess.DEVNULL)
        with open(out) as file:
            rows = [json.loads(line) for line in file]
    return {row["name"]: row["value"] for row in rows}


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/bench/bench"
    torch.set_num_threads(1)
    theirs()  # warm-up
    pairs = [(ours(program), theirs()) for _ in range(ROUNDS)]
    for name in pairs[0][1]:
        here = statistics.median(a[name] for a, _ in pairs)
        there = statistics.median(b[name] for _, b in pairs)
        ratio = statistics.median(b[name] / a[name] for a, b in pairs)
        print(f"{name:24} {here:8.0f} ns   PyTorch {there:8.0f} ns   {ratio:5.1f} times as long")


main()
