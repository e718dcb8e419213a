#!/usr/bin/env python3
"""What a call costs from Python: Gradus, PyTorch and NumPy in one process, in turn, medians of many rounds.

    PYTHONPATH=build/python python bench/python.py [--rounds 30] [--device cuda [--program build/bench/bench_device]]

PyTorch and NumPy are left out where they are not installed. The last column is PyTorch's time divided by ours.

On a device the tensors of all calls are there, and a figure is the time that the calling thread needs for a call: the clock
stops before the device has finished. --program prints C's time for "a + b" beside ours, measured in turn."""
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


# Between two synchronizations: the queue of CUDA's driver holds 1024 launches, and who queues more waits.
MAX_QUEUED = 400


def loop(function, count, synchronize):
    """Nanoseconds of one call, with those of the loop."""
    r = range(count)
    synchronize()
    start = time.perf_counter_ns()
    for _ in r:
        function()
    took = time.perf_counter_ns() - start
    synchronize()
    return took / count


def c_time(program, device):
    """Nanoseconds that C's thread needs for an add of one element."""
    done = subprocess.run([program, "--one", "add", "--device", device], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return 1e3 * float(done.stdout.split()[1])


def cases(device):
    """Rows: a name, and the call in each library; None where a library has no such call."""
    ours = gd.tensor([1.0], device=device), gd.tensor([2.0], device=device)
    leaf = gd.tensor([1.0], requires_grad=True, device=device)
    square = gd.ones((4, 4), device=device)
    theirs = (torch.tensor([1.0], device=device), torch.tensor([2.0], device=device)) if torch else None
    their_leaf = torch.tensor([1.0], requires_grad=True, device=device) if torch else None
    their_square = torch.ones((4, 4), device=device) if torch else None
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
    layer = gd.nn.Linear(4, 4).to(device)
    their_layer = torch.nn.Linear(4, 4).to(device) if torch else None
    yield "layer(x)", lambda: layer(square), torch and (lambda: their_layer(their_square)), None
    step = gd.jit(lambda x: gd.tanh(x * 2 + 1) * x)
    many = gd.ones(64, device=device)
    yield "a jit of four ops, 64 elements", lambda: step(many), None, None
    yield "item()", lambda: ours[0].item(), theirs and (lambda: theirs[0].item()), arrays and (lambda: arrays[0].item())
    if numpy and device == "cpu":
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


def print_beside_c(o):
    """Five times in turn, because a process may run on a slower core than the other."""
    a, b = gd.tensor([1.0], device=o.device), gd.tensor([2.0], device=o.device)
    pairs = []
    for _ in range(5):
        times = []
        for _ in range(-2, o.rounds):
            empty = loop(lambda: None, o.calls, lambda: None)
            times.append(loop(lambda: a + b, o.calls, lambda: gd.synchronize(o.device)) - empty)
        pairs.append((c_time(o.program, o.device), statistics.median(times[2:])))
    print("a + b, ns: " + ", ".join(f"C {c:.0f} Python {p:.0f}" for c, p in pairs) +
          f"; median difference {statistics.median(p - c for c, p in pairs):.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--program", help="bench_device of the build, to compare with C")
    o = parser.parse_args()
    gd.set_num_threads(1)
    synchronizes = [lambda: None] * 3
    if o.device != "cpu":
        global torch, numpy
        numpy = None
        if torch and not (torch.device(o.device).type == "cuda" and torch.cuda.is_available()):
            torch = None
        o.calls = min(o.calls, MAX_QUEUED)
        synchronizes[:2] = [lambda: gd.synchronize(o.device), lambda: torch.cuda.synchronize()]
    if o.program:
        print_beside_c(o)
    print(f"{'ns for a call':32} {'gradus':>9} {'torch':>9} {'numpy':>9} {'torch/gradus':>13}")
    for name, *calls in cases(o.device):
        times = [[] for _ in calls]
        for i in range(-2, o.rounds):
            empty = loop(lambda: None, o.calls, synchronizes[2])
            for at, call, synchronize in zip(times, calls, synchronizes):
                if call:
                    t = loop(call, o.calls, synchronize) - empty
                    if i >= 0:
                        at.append(t)
        medians = [statistics.median(t) if t else None for t in times]
        ratio = f"{medians[1] / medians[0]:.1f}" if medians[1] else ""
        print(f"{name:32} " + " ".join(f"{m:9.0f}" if m else " " * 9 for m in medians) + f" {ratio:>13}")
    if o.device != "cpu":
        return
    imports = [import_time("gradus"), import_time("torch") if torch else None, import_time("numpy") if numpy else None]
    print(f"{'import, ms':32} " + " ".join(f"{m:9.1f}" if m else " " * 9 for m in imports))


if __name__ == "__main__":
    main()
