#!/usr/bin/env python3
"""What a call costs from Python: Gradus, PyTorch and NumPy in one process, in turn, medians of many rounds.

    PYTHONPATH=build/python python bench/python.py [--rounds 30]

PyTorch and NumPy are left out where they are not installed. The last column is PyTorch's time divided by ours."""
import argparse
import statistics
import subprocess
import sys
import time

import gradus as gd

try:
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None
try:
    import numpy
except ImportError:
    numpy = None


def loop(function, count):
    """Nanoseconds of one call, without those of an empty loop."""
    r = range(count)
    start = time.perf_counter_ns()
    for _ in r:
        function()
    return (time.perf_counter_ns() - start) / count


def cases():
    """Rows: a name, and the call in each library; None where a library has no such call."""
    ours = gd.tensor([1.0]), gd.tensor([2.0])
    leaf = gd.tensor([1.0], requires_grad=True)
    square = gd.ones((4, 4))
    theirs = (torch.tensor([1.0]), torch.tensor([2.0])) if torch else None
    their_leaf = torch.tensor([1.0], requires_grad=True) if torch else None
    their_square = torch.ones((4, 4)) if torch else None
    arrays = (numpy.ones(1, "f4"), numpy.ones(1, "f4")) if numpy else None
    their_array = numpy.ones((4, 4), "f4") if numpy else None
    yield "a + b", lambda: ours[0] + ours[1], theirs and (lambda: theirs[0] + theirs[1]), \
        arrays and (lambda: arrays[0] + arrays[1])
    yield "a + b on the tape", lambda: leaf + ours[1], theirs and (lambda: their_leaf + theirs[1]), None
    yield "a + 1.0", lambda: ours[0] + 1.0, theirs and (lambda: theirs[0] + 1.0), arrays and (lambda: arrays[0] + 1.0)
    yield "gd.add(a, b)", lambda: gd.add(*ours), theirs and (lambda: torch.add(*theirs)), \
        arrays and (lambda: numpy.add(*arrays))
    yield "sum(x, axis=1, keepdims=True)", lambda: gd.sum(square, axis=1, keepdims=True), \
        torch and (lambda: torch.sum(their_square, dim=1, keepdim=True)), \
        numpy and (lambda: numpy.sum(their_array, axis=1, keepdims=True))
    yield "x[0]", lambda: square[0], torch and (lambda: their_square[0]), numpy and (lambda: their_array[0])
    yield "x.reshape(2, 8)", lambda: square.reshape(2, 8), torch and (lambda: their_square.reshape(2, 8)), \
        numpy and (lambda: their_array.reshape(2, 8))
    yield "relu(x)", lambda: gd.relu(square), torch and (lambda: torch.relu(their_square)), None
    layer = gd.nn.Linear(4, 4)
    their_layer = torch.nn.Linear(4, 4) if torch else None
    yield "layer(x)", lambda: layer(square), torch and (lambda: their_layer(their_square)), None
    step = gd.jit(lambda x: gd.tanh(x * 2 + 1) * x)
    many = gd.ones(64)
    yield "a jit of four ops, 64 elements", lambda: step(many), None, None
    yield "item()", lambda: ours[0].item(), theirs and (lambda: theirs[0].item()), arrays and (lambda: arrays[0].item())
    if numpy:
        yield "NumPy in", lambda: gd.as_tensor(their_array), torch and (lambda: torch.as_tensor(their_array)), None
        yield "NumPy out", lambda: square.numpy(), torch and (lambda: their_square.numpy()), None


def import_time(module):
    """Milliseconds that an interpreter takes longer if it imports a module, the median of 9."""
    def run(code):
        times = []
        for _ in range(9):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(1e3 * (time.perf_counter() - start))
        return statistics.median(times)
    return run(f"import {module}") - run("pass")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=5000)
    o = parser.parse_args()
    gd.set_num_threads(1)
    print(f"{'ns for a call':32} {'gradus':>9} {'torch':>9} {'numpy':>9} {'torch/gradus':>13}")
    for name, *calls in cases():
        times = [[] for _ in calls]
        for _ in range(o.rounds):
            empty = loop(lambda: None, o.calls)
            for at, call in zip(times, calls):
                if call:
                    at.append(loop(call, o.calls) - empty)
        medians = [statistics.median(t) if t else None for t in times]
        ratio = f"{medians[1] / medians[0]:.1f}" if medians[1] else ""
        print(f"{name:32} " + " ".join(f"{m:9.0f}" if m else " " * 9 for m in medians) + f" {ratio:>13}")
    imports = [import_time("gradus"), import_time("torch") if torch else None, import_time("numpy") if numpy else None]
    print(f"{'import, ms':32} " + " ".join(f"{m:9.1f}" if m else " " * 9 for m in imports))


if __name__ == "__main__":
    main()
