#!/usr/bin/env python3
"""Training steps here and in PyTorch, in turn, on the same machine.

    python bench/versus_pytorch.py [build/bench/bench]

with a Python that has PyTorch. Both nets (see bench/train.h) take steps in rounds, first here, then
there, many times; printed are the medians, and the median of the ratios of each pair of rounds.
A round is 100 ms that do not count, since a processor that was idle takes about as long to come up to
speed, and 100 ms that do. PyTorch's time is the better of eager and torch.compile.
"""
import argparse
import statistics
import subprocess
import time

import torch
from torch import nn

ROUNDS = 31


def make_net(name):
    torch.manual_seed(0)
    if name == "two_layer":
        net = nn.Sequential(nn.Linear(1000, 100), nn.ReLU(), nn.Linear(100, 10))
        return net, torch.randn(64, 1000), torch.randn(64, 10), nn.MSELoss()
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return net, torch.randn(128, 784), torch.randint(0, 10, (128,)), nn.CrossEntropyLoss()


class Theirs:
    def __init__(self, name, compiled):
        net, self.x, self.y, loss = make_net(name)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

        def loss_of(x, y):
            return loss(net(x), y)

        forward = torch.compile(loss_of) if compiled else loss_of

        def step():
            optimizer.zero_grad()
            forward(self.x, self.y).backward()
            optimizer.step()

        self.step = step
        for _ in range(20):
            step()
        self.each = 1e6

    def round(self):
        steps = 1 + int(100e6 / self.each)
        for _ in range(steps):
            self.step()
        start = time.perf_counter_ns()
        for _ in range(steps):
            self.step()
        self.each = (time.perf_counter_ns() - start) / steps
        return self.each


class Ours:
    def __init__(self, bench, name, mode, threads):
        self.process = subprocess.Popen([bench, "--steps", name, mode, str(threads)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def round(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", nargs="?", default="build/bench/bench", help="the program that `make bench` builds")
    bench = parser.parse_args().bench
    print(f"PyTorch {torch.__version__}; milliseconds a step, medians of {ROUNDS} rounds")
    print(f"{'net':10} {'threads':>7} {'eager':>8} {'plan':>8} {'fused':>8} | {'torch':>8} {'compiled':>8} | ratio, best against best")
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for name in ("two_layer", "mlp"):
            ours = {mode: Ours(bench, name, mode, threads) for mode in ("eager", "plan", "fused")}
            theirs = {"torch": Theirs(name, False)}
            try:
                theirs["compiled"] = Theirs(name, True)
            except Exception as problem:  # no compiler, say
                print("torch.compile:", str(problem).splitlines()[0])
            times = {key: [] for key in (*ours, *theirs)}
            for _ in range(ROUNDS):
                for key, side in (*ours.items(), *theirs.items()):
                    time.sleep(0.02)  # threads of the one before fall asleep
                    times[key].append(side.round())
            for side in ours.values():
                side.end()
            medians = {key: statistics.median(values) / 1e6 for key, values in times.items()}
            best_ours = min(ours, key=medians.get)
            best_theirs = min(theirs, key=medians.get)
            ratio = statistics.median(b / a for a, b in zip(times[best_ours], times[best_theirs]))
            eager = statistics.median(b / a for a, b in zip(times["eager"], times["torch"]))
            compiled = medians.get("compiled", float("nan"))
            print(f"{name:10} {threads:7} {medians['eager']:8.3f} {medians['plan']:8.3f} {medians['fused']:8.3f} | "
                  f"{medians['torch']:8.3f} {compiled:8.3f} | {ratio:.2f} (eager against eager {eager:.2f})", flush=True)


if __name__ == "__main__":
    main()
