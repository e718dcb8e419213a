#!/usr/bin/env python3
"""Compares training steps in Gradus and in PyTorch, in alternating rounds on the same machine.

    python bench/versus_pytorch.py [build/bench/bench] [--nets lenet,gpt] [--no-compile] [--record "Zen 4"]

Needs PyTorch. bench/train.h and bench/zoo.h describe the nets. Rounds of steps alternate between both sides; the script prints
the medians of the times, and the median of the ratios of paired rounds. Each round first runs 100 ms (at least one step) that are
not timed, because an idle processor needs about as long to reach its clock frequency, and then 100 ms that are. The time of
PyTorch is the best of eager, eager with channels_last for images, and torch.compile.

A network of the zoo gets the same weights and the same batch on both sides, through a file of torch.save. The losses of its first
three steps, including the optimizer, are compared before anything is timed.

--record MACHINE writes the ratios to bench/figures.json; then bench/draw_speed.py draws the chart and updates docs/speed.md.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

import figures

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "tests", "golden")]
ROUNDS = 31

# --- nets ------------------------------------------------------------------------------------------


def two_layer():
    net = nn.Sequential(nn.Linear(1000, 100), nn.ReLU(), nn.Linear(100, 10))
    return net, torch.randn(64, 1000), torch.randn(64, 10)


def mlp():
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return net, torch.randn(128, 784), torch.randint(0, 10, (128,))


def lenet():
    import zoo_make
    return zoo_make.LeNet(), torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))


def resnet20():
    import zoo_make
    return zoo_make.resnet20(10), torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,))


def resnet18():
    import zoo_make
    return zoo_make.resnet18(1000), torch.randn(8, 3, 224, 224), torch.randint(0, 1000, (8,))


def char_lstm():
    import zoo_sequence
    text = torch.randint(0, 65, (32, 65))
    return zoo_sequence.char_lstm(65), text[:, :-1].contiguous(), text[:, 1:].contiguous()


def gpt():
    import zoo_sequence
    text = torch.randint(0, 65, (16, 129))
    return zoo_sequence.gpt(65), text[:, :-1].contiguous(), text[:, 1:].contiguous()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-3)


def zoo_sgd(momentum):
    return lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=momentum)


# name: (function that creates the net and a batch, optimizer, rounds, takes images, is in the zoo).
# bench/zoo.c has the same optimizers.
NETS = {
    "two_layer": (two_layer, sgd, ROUNDS, False, False),
    "mlp": (mlp, sgd, ROUNDS, False, False),
    "lenet": (lenet, zoo_sgd(0), 15, True, True),
    "resnet20": (resnet20, zoo_sgd(0.9), 9, True, True),
    "resnet18": (resnet18, zoo_sgd(0.9), 5, True, True),
    "char_lstm": (char_lstm, lambda p: torch.optim.Adam(p, lr=1e-3), 9, False, True),
    "gpt": (gpt, lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.01), 7, False, True),
}


def loss_of(net, x, y):
    out = net(x)
    out = out[0] if isinstance(out, tuple) else out
    if y.is_floating_point():
        return F.mse_loss(out, y)
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))


# --- the two sides ---------------------------------------------------------------------------------


class Theirs:
    def __init__(self, name, compiled=False, channels_last=False):
        torch.manual_seed(0)
        make, optimizer_of, _, _, self.zoo = NETS[name]
        self.net, self.x, self.y = make()
        if channels_last:
            self.net = self.net.to(memory_format=torch.channels_last)
            self.x = self.x.to(memory_format=torch.channels_last)
        self.optimizer = optimizer_of(self.net.parameters())
        self.forward = torch.compile(loss_of) if compiled else loss_of

    def step(self):
        self.optimizer.zero_grad()
        loss = self.forward(self.net, self.x, self.y)
        loss.backward()
        self.optimizer.step()
        return loss

    def warm_up(self):
        start, steps = time.perf_counter_ns(), 0
        while steps < 20 and time.perf_counter_ns() - start < 2e9:
            self.step()
            steps += 1
        self.each = (time.perf_counter_ns() - start) / steps

    def save(self, path):
        """Writes the weights and the batch for bench/zoo.c."""
        torch.save({"net": self.net.state_dict(), "x": self.x, "y": self.y}, path)

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
    def __init__(self, bench, name, mode, threads, *file):
        self.process = subprocess.Popen([bench, "--steps", name, mode, str(threads), *file], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def losses(self):
        return [float(word) for word in self.process.stdout.readline().split()]

    def round(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def check_losses(name, ours, theirs):
    """The tolerance of the first step is that of f32 sums; differences grow in later steps."""
    far = [abs(a - b) / abs(b) for a, b in zip(ours, theirs)]
    if len(ours) == 3 and all(f < limit for f, limit in zip(far, (1e-4, 1e-3, 1e-2))):
        return
    sys.exit(f"{name}: the losses differ: Gradus {ours}, PyTorch {theirs}")


def start_sides(name, threads, bench, folder, compiles):
    """Returns both sides, warmed up."""
    _, _, _, images, zoo = NETS[name]
    theirs = {"torch": Theirs(name)}
    if not zoo:
        ours = {mode: Ours(bench, name, mode, threads) for mode in ("eager", "plan", "fused")}
    else:
        file = os.path.join(folder, name + ".pt")
        theirs["torch"].save(file)
        ours = {mode: Ours(bench, name, mode, threads, file) for mode in ("eager", "jit")}
        losses = [theirs["torch"].step().item() for _ in range(3)]
        for side in ours.values():
            check_losses(name, side.losses(), losses)
    if images:
        theirs["last"] = Theirs(name, channels_last=True)
    try:
        if compiles:
            theirs["compiled"] = Theirs(name, compiled=True)
            theirs["compiled"].step()
    except Exception as problem:  # for example without a compiler
        theirs.pop("compiled")
        print("torch.compile:", str(problem).splitlines()[0])
    for side in theirs.values():
        side.warm_up()
    return ours, theirs


def compare(name, threads, bench, folder, compiles, rounds):
    """Prints the times, and returns the ratio of the best modes."""
    torch.set_num_threads(threads)
    ours, theirs = start_sides(name, threads, bench, folder, compiles)
    times = {key: [] for key in (*ours, *theirs)}
    for _ in range(rounds or NETS[name][2]):
        for key, side in (*ours.items(), *theirs.items()):
            time.sleep(0.02)  # lets the threads of the previous side fall asleep
            times[key].append(side.round())
    for side in ours.values():
        side.end()
    medians = {key: statistics.median(values) / 1e6 for key, values in times.items()}
    best_ours, best_theirs = min(ours, key=medians.get), min(theirs, key=medians.get)
    ratio = statistics.median(b / a for a, b in zip(times[best_ours], times[best_theirs]))
    eager = statistics.median(b / a for a, b in zip(times["eager"], times["torch"]))
    columns = [f"{medians[key]:8.3f}" if key in medians else " " * 8
               for key in ("eager", "plan", "fused", "jit", "torch", "last", "compiled")]
    print(f"{name:10} {threads:7} {' '.join(columns[:4])} | {' '.join(columns[4:])} | "
          f"{ratio:.2f} (eager vs. eager {eager:.2f})", flush=True)
    return ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", nargs="?", default="build/bench/bench", help="the program that `make bench` builds")
    parser.add_argument("--nets", default=",".join(NETS), help="nets to compare, of %(default)s")
    parser.add_argument("--threads", default="1,2", help="%(default)s")
    parser.add_argument("--rounds", type=int, help="default: 5 to 31, depending on the net")
    parser.add_argument("--no-compile", action="store_true", help="skip torch.compile, which takes minutes for large nets")
    parser.add_argument("--record", metavar="MACHINE", help="write the ratios to bench/figures.json")
    args = parser.parse_args()
    print(f"PyTorch {torch.__version__}; milliseconds per step, medians over rounds")
    print(f"{'net':10} {'threads':>7} {'eager':>8} {'plan':>8} {'fused':>8} {'jit':>8} | {'torch':>8} {'last':>8} {'compiled':>8} | "
          "ratio, best vs. best")
    with tempfile.TemporaryDirectory() as folder:
        for threads in args.threads.split(","):
            for name in args.nets.split(","):
                ratio = figures.rounded(compare(name, int(threads), args.bench, folder, not args.no_compile, args.rounds))
                if args.record:
                    figures.record("cpu", name, {f"threads_{threads}": (ratio, ratio)}, machine=args.record,
                                   pytorch=figures.version(torch))


if __name__ == "__main__":
    main()
