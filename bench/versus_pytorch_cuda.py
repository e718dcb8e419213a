#!/usr/bin/env python3
"""Compares training steps in Gradus and in PyTorch on a CUDA device, in alternating rounds.

    python bench/versus_pytorch_cuda.py [build/bench/bench_device] [--nets lenet,gpt2] [--peers torch,both] [--profile] [--twice] [--record]

Needs PyTorch with CUDA. Both sides get the same weights and the same batch through a file of torch.save, and keep the batch on
the device. The loss, the norm of all gradients, and the losses of three steps with the optimizer are compared first; a side
that disagrees is not timed. Then rounds of steps alternate between all sides; the table has the medians.

Gradus runs as a child process (bench/cuda/steps.c): "eager" calls ops one by one, "plan" is the same step as a gd_jit. PyTorch
runs eagerly ("torch"), as one captured CUDA graph of the entire step ("graph"), with torch.compile of forward and loss
("compile"), and compiled and captured ("both"); a mode that does not work for a net is named and left out. Its optimizers are
fused ones, cudnn.benchmark is on, and nothing makes it deterministic. Gradus is always deterministic.

The ratio is the best time of all modes of PyTorch divided by the time of our plan; "eager" is PyTorch's eager time divided by
ours. Launches are those of one step of ours: eager, where a call of a library counts as one, and as a plan, where all kernels
count. Memory is the peak of both in MiB, PyTorch's in its fastest mode.

--profile prints our kernels by time for each net. --twice runs 20 steps in two processes for each net and mode, and compares
checksums of all weights. --extra measures a one-element add, gelu(x*2+1)*x over 2^26 floats, softmax and RMS norm written by hand over 16384 x 1024
floats, and the time to start. --record writes ratios and memory to bench/figures.json; then bench/draw_speed.py draws the chart
and updates docs/speed.md.
"""
import argparse
import os
import select
import shutil
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

# --- nets ------------------------------------------------------------------------------------------


class Net:
    """A network of both sides. zoo: the record of Gradus and its options, or its layers; optimizer: the name and options of
    Gradus, from which PyTorch's is made; precision: f32, tf32 or bf16 (autocast)."""

    def __init__(self, make, batch, zoo, options="", optimizer="sgd lr=0.001", precision="f32", images=False, loss="cross_entropy"):
        self.make, self.batch, self.zoo, self.options, self.optimizer = make, batch, zoo, options, optimizer
        self.precision, self.images, self.loss = precision, images, loss


def mlp_layers(*sizes):
    layers = [nn.Flatten()]
    for i in range(len(sizes) - 1):
        layers += ([nn.ReLU()] if i else []) + [nn.Linear(sizes[i], sizes[i + 1])]
    return nn.Sequential(*layers)


def lenet():
    return nn.Sequential(nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


LENET = ("conv2d in_channels=1 out_channels=20 kernel=5; relu; max_pool2d kernel=2; conv2d in_channels=20 out_channels=50 kernel=5; "
         "relu; max_pool2d kernel=2; flatten; linear in_features=800 out_features=500; relu; linear in_features=500 out_features=10")


def zoo(name, *args, **more):
    def make():
        import zoo_make
        return getattr(zoo_make, name)(*args, **more)
    return make


def sequence(name, *args, **more):
    def make():
        import zoo_sequence
        return getattr(zoo_sequence, name)(*args, **more)
    return make


def classes(shape, count):
    return lambda: (torch.randn(*shape), torch.randint(0, count, (shape[0],)))


def text(n, steps, vocabulary):
    def make():
        tokens = torch.randint(0, vocabulary, (n, steps + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    return make


def regression(n, inputs, outputs):
    return lambda: (torch.randn(n, inputs), torch.randn(n, outputs))


MOMENTUM, ADAM, ADAMW = "sgd lr=0.01 momentum=0.9", "adam lr=0.001", "adamw lr=0.0003 weight_decay=0.1"
IMAGES, GPT2 = (3, 224, 224), dict(context=1024, layers=12, heads=12, width=768)


def resnet(name, precision):
    return Net(zoo(name, 1000), classes((128, *IMAGES), 1000), name, optimizer=MOMENTUM, precision=precision, images=True)


def lstm(precision):
    return Net(sequence("char_lstm", 65, embedding=512, hidden=512), text(64, 128, 65), "char_lstm",
               "vocabulary=65 embedding=512 hidden=512", ADAM, precision)


NETS = {
    "two_layer": Net(lambda: mlp_layers(1000, 100, 1000), regression(64, 1000, 1000), "mlp", "outputs=1000 hidden=100", loss="mse"),
    "mlp": Net(lambda: mlp_layers(784, 512, 512, 10), classes((128, 784), 10), "mlp", "outputs=10 hidden=512,512"),
    "lenet": Net(lenet, classes((64, 1, 28, 28), 10), LENET, optimizer="sgd lr=0.01"),
    "vgg16": Net(zoo("VGG16", 1000), classes((16, *IMAGES), 1000), "vgg16", "dropout=0", MOMENTUM, "tf32"),
    "resnet18": resnet("resnet18", "tf32"),
    "resnet18_bf16": resnet("resnet18", "bf16"),
    "resnet50": resnet("resnet50", "tf32"),
    "resnet50_bf16": resnet("resnet50", "bf16"),
    "char_lstm": lstm("tf32"),
    "char_lstm_bf16": lstm("bf16"),
    "gpt2": Net(sequence("gpt", 50304, **GPT2), text(16, 1024, 50304), "gpt",
                "vocabulary=50304 " + " ".join(f"{k}={v}" for k, v in GPT2.items()), ADAMW, "bf16"),
    # small ones, to try this script on a slow device
    "tiny_mlp": Net(lambda: mlp_layers(20, 16, 5), classes((8, 20), 5), "mlp", "outputs=5 hidden=16"),
    "tiny_lstm": Net(sequence("char_lstm", 17, embedding=12, hidden=10), text(3, 7, 17), "char_lstm",
                     "vocabulary=17 embedding=12 hidden=10", ADAM),
    "tiny_gpt": Net(sequence("gpt", 19, context=12, layers=1, heads=2, width=16), text(2, 10, 19), "gpt",
                    "vocabulary=19 context=12 layers=1 heads=2 width=16", ADAMW),
}
PEERS = ("torch", "graph", "compile", "both")  # modes of PyTorch
DEFAULT = [name for name in NETS if not name.startswith("tiny")]
# The allowed relative differences of: loss, norm of the gradients, losses of three steps.
TOLERANCES = {"f32": (1e-4, 1e-3, 1e-3), "tf32": (3e-3, 2e-2, 2e-2), "bf16": (1e-2, 5e-2, 5e-2)}


def make_optimizer(text, parameters, graph):
    name, *options = text.split()
    options = {key: float(value) for key, value in (option.split("=") for option in options)}
    fused = parameters[0].is_cuda
    if name == "sgd":
        return torch.optim.SGD(parameters, fused=fused, **options)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name](parameters, fused=fused, capturable=graph and fused, **options)


# --- PyTorch ---------------------------------------------------------------------------------------


class Theirs:
    def __init__(self, net, device, mode):
        """mode: torch, graph, compile or both."""
        torch.manual_seed(0)
        self.device, self.net = device, net
        base = self.allocated()
        module, (x, y) = net.make(), net.batch()
        last = net.images and net.precision == "bf16"
        module = module.to(device, memory_format=torch.channels_last if last else torch.preserve_format)
        x = x.to(device)
        self.x, self.y = x.to(memory_format=torch.channels_last) if last else x, y.to(device)
        self.module = module
        self.optimizer = make_optimizer(net.optimizer, list(module.parameters()), mode in ("graph", "both"))
        self.loss_of = torch.compile(self.forward) if mode in ("compile", "both") else self.forward
        self.run = self.step
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        if mode in ("graph", "both"):
            self.capture()
        else:
            for _ in range(3):
                self.step()
        self.synchronize()
        self.peak = torch.cuda.max_memory_allocated() - base if torch.cuda.is_available() else 0
        self.each = self.time(1)

    @staticmethod
    def allocated():
        return torch.cuda.memory_allocated() if torch.cuda.is_available() else 0

    def forward(self, x, y):
        with torch.autocast(self.device.split(":")[0], torch.bfloat16, enabled=self.net.precision == "bf16"):
            out = self.module(x)
            out = out[0] if isinstance(out, tuple) else out
            if self.net.loss == "mse":
                return F.mse_loss(out, y)
            return F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(self.x, self.y)
        loss.backward()
        self.optimizer.step()
        return loss

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self.run = graph.replay

    def synchronize(self):
        if self.device != "cpu":
            torch.cuda.synchronize()

    def time(self, steps):
        self.synchronize()
        start = time.perf_counter_ns()
        for _ in range(steps):
            self.run()
        self.synchronize()
        return (time.perf_counter_ns() - start) / steps

    def round(self, ms):
        self.each = self.time(1 + int(ms * 1e6 / self.each))
        self.each = self.time(1 + int(ms * 1e6 / self.each))
        return self.each


def expected_numbers(net, device, path):
    """Writes the weights and the batch to a file; returns the loss, the norm of the gradients, and the losses of three steps."""
    torch.manual_seed(0)
    module, (x, y) = net.make(), net.batch()
    torch.save({"net": module.state_dict(), "x": x, "y": y}, path)
    theirs = Theirs.__new__(Theirs)
    theirs.device, theirs.net, theirs.module = device, net, module.to(device)
    theirs.x, theirs.y, theirs.loss_of = x.to(device), y.to(device), theirs.forward
    theirs.optimizer = make_optimizer(net.optimizer, list(module.parameters()), False)
    loss = theirs.forward(theirs.x, theirs.y)
    loss.backward()
    norm = torch.stack([p.grad.double().square().sum() for p in module.parameters() if p.grad is not None]).sum().sqrt()
    numbers = [loss.item(), norm.item()]
    # the first pass has updated the statistics of batch norms, as ours does
    return numbers + [theirs.step().item() for _ in range(3)]


def choose_precision(precision):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "f32"
    torch.backends.cudnn.benchmark = True


# --- Gradus ----------------------------------------------------------------------------------------


class Failed(Exception):
    pass


class Ours:
    def __init__(self, program, net, device, mode, file, limit):
        command = [program, "--device", device, "--net", net.zoo, "--options", net.options, "--optimizer", net.optimizer,
                   "--file", file, "--mode", mode, "--loss", net.loss]
        command += ["--autocast", "bf16"] if net.precision == "bf16" else []
        command += ["--tf32"] if net.precision == "tf32" else []
        # plans choose the layout of their temporaries, so they are fed as a program would feed them
        command += ["--nhwc"] if net.images and net.precision == "bf16" and mode != "plan" else []
        self.limit, self.read = limit, b""
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def line(self):
        """The next line of output, without its end."""
        while b"\n" not in self.read:
            ready, _, _ = select.select([self.process.stdout], [], [], self.limit)
            if not ready:
                self.process.kill()
                raise Failed(f"no answer within {self.limit} s")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise Failed(" ".join(self.process.stderr.read().decode().split())[:400] or f"status {self.process.wait()}")
            self.read += more
        line, self.read = self.read.split(b"\n", 1)
        return line.decode()

    def ask(self, command):
        try:
            self.process.stdin.write(f"{command}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.line()

    def round(self, ms):
        return float(self.ask(f"round {ms}"))

    def profile(self):
        lines = [self.ask("profile")]
        while lines[-1]:
            lines.append(self.line())
        return "\n".join(lines)

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def difference(ours, theirs, precision):
    """None if the numbers agree, else a text."""
    first, norm, steps = TOLERANCES[precision]
    limits = [first, norm, steps, 2 * steps, 4 * steps]
    far = [abs(a - b) / abs(b) for a, b in zip(ours, theirs)]
    if len(ours) == 5 and all(f < limit for f, limit in zip(far, limits)):  # NaN fails
        return None
    return "numbers differ: ours " + " ".join(f"{v:.6g}" for v in ours) + ", PyTorch's " + " ".join(f"{v:.6g}" for v in theirs)


# --- comparison ------------------------------------------------------------------------------------


def start_ours(args, name, file, expected):
    ours = {}
    for mode in args.modes.split(","):
        try:
            side = Ours(args.program, NETS[name], args.device, mode, file, args.limit)
            problem = difference([float(word) for word in side.line().split()], expected, NETS[name].precision)
            if problem:
                side.end()
                raise Failed(problem)
            side.ask("round 1")
            ours[mode] = side
        except (Failed, ValueError) as problem:
            print(f"{name}: {mode}: {problem}", flush=True)
    return ours


def start_theirs(args, name):
    theirs = {}
    torch._dynamo.reset()  # otherwise compiled code of earlier nets counts towards a limit beyond which steps run eagerly
    for mode in args.peers.split(","):
        try:
            theirs[mode] = Theirs(NETS[name], args.torch_device, mode)
        except Exception as problem:  # out of memory, or no compiler
            print(f"{name}: {mode}: {str(problem).splitlines()[0][:200]}", flush=True)
    return theirs


def show(name, ours, theirs, times):
    """Prints a row of the table; returns its figures for bench/figures.json."""
    medians = {key: statistics.median(values) / 1e6 for key, values in times.items() if values}
    best_theirs = min(theirs, key=medians.get) if theirs else None
    best_ours = "plan" if "plan" in medians else "eager"

    def ratio(a, b):
        return statistics.median(y / x for x, y in zip(times[a], times[b])) if a in medians and b in medians else None

    def shown(value):
        return "     -" if value is None else f"{value:6.2f}"
    best, eager = ratio(best_ours, best_theirs), ratio("eager", "torch")
    columns = " ".join(f"{medians[key]:8.3f}" if key in medians else "       -"
                       for key in ("eager", "plan", *PEERS))
    counts = {m: int(ours[m].ask("launches")) for m in ours}
    launches = " ".join(f"{counts[m]:5}" if counts.get(m, -1) >= 0 else "    -" for m in ("eager", "plan"))
    peaks = {m: round(float(ours[m].ask("peak")) / 2**20) for m in ours}
    theirs_peak = round(theirs[best_theirs].peak / 2**20) if theirs else 0
    peak = " ".join(f"{peaks[m]:7}" if m in peaks else "      -" for m in ("eager", "plan"))
    print(f"{name:14} {columns} | {shown(best)} {shown(eager)} | {launches} | {peak} {theirs_peak:7}", flush=True)
    if best is None or eager is None or "plan" not in ours:
        return None
    return {"eager": figures.rounded(eager), "plan": figures.rounded(best), "mib": peaks["plan"], "pytorch_mib": theirs_peak}


def compare(args, name, folder):
    net = NETS[name]
    file = os.path.join(folder, name + ".pt")
    choose_precision(net.precision)
    expected = expected_numbers(net, args.torch_device, file)
    ours, theirs = start_ours(args, name, file, expected), start_theirs(args, name)
    times = {key: [] for key in (*ours, *theirs)}
    for _ in range(args.rounds):
        for key, side in (*ours.items(), *theirs.items()):
            times[key].append(side.round(args.ms))
    measured = show(name, ours, theirs, times)
    if args.record and measured:
        figures.record("gpu", name, measured, machine=torch.cuda.get_device_name(), pytorch=figures.version(torch))
    if args.profile:
        for mode, side in ours.items():
            print(f"--- {name}, {mode}: one step\n{side.profile()}", flush=True)
    for side in ours.values():
        side.end()
    os.remove(file)
    theirs.clear()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def run_twice(args, name, folder):
    """Compares the weights after 20 steps in two processes."""
    file = os.path.join(folder, name + ".pt")
    choose_precision(NETS[name].precision)
    expected_numbers(NETS[name], args.torch_device, file)
    for mode in args.modes.split(","):
        sums = []
        for _ in range(2):
            try:
                side = Ours(args.program, NETS[name], args.device, mode, file, args.limit)
                side.line()
                sums.append(side.ask(f"checksum {args.steps}").strip())
                side.end()
            except Failed as problem:
                sums.append(str(problem))
        verdict = "same bits" if sums[0] == sums[1] and len(sums[0]) == 16 else "DIFFERENT"
        print(f"{name:14} {mode:6} {verdict}: {sums[0]} {sums[1] if sums[1] != sums[0] else ''}", flush=True)
    os.remove(file)


def measure_extra(args, folder):
    def one(name, env=None):
        done = subprocess.run([args.program, "--one", name, "--device", args.device], capture_output=True, text=True,
                              env={**os.environ, **(env or {})})
        return (done.stdout or done.stderr).strip()
    print("add:", one("add"), flush=True)
    for name in ("gelu", "softmax", "rms"):
        print(f"{name}:", one(name), flush=True)
    caches = {"GRADUS_CACHE": os.path.join(folder, "cache"), "CUDA_CACHE_PATH": os.path.join(folder, "nv")}
    for _ in range(2):
        print("bare:", one("bare", caches), flush=True)
    for state in ("cold", "warm", "warm"):
        print(f"start, {state}:", one("start", caches), flush=True)
    shutil.rmtree(caches["GRADUS_CACHE"], ignore_errors=True)


def parse_arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default="build/bench/bench_device", help="default: %(default)s")
    parser.add_argument("--nets", default=",".join(DEFAULT), help="of %(default)s")
    parser.add_argument("--modes", default="eager,plan", help="of Gradus: %(default)s")
    parser.add_argument("--device", default="cuda", help="of Gradus: %(default)s")
    parser.add_argument("--torch-device", default="cuda", help="%(default)s")
    parser.add_argument("--rounds", type=int, default=9, help="%(default)s")
    parser.add_argument("--ms", type=float, default=100, help="length of a round: %(default)s")
    parser.add_argument("--limit", type=float, default=60, help="seconds to wait for an answer of Gradus: %(default)s")
    parser.add_argument("--steps", type=int, default=20, help="of --twice: %(default)s")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no further net after this time")
    parser.add_argument("--peers", help=f"modes of PyTorch: {','.join(PEERS)} (on the CPU: torch)")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--extra", action="store_true")
    parser.add_argument("--record", action="store_true", help="write the figures to bench/figures.json")
    args = parser.parse_args(words)
    if not args.peers:
        args.peers = "torch" if args.torch_device == "cpu" else ",".join(PEERS)
    unknown = set(args.peers.split(",")) - set(PEERS)
    if unknown:
        parser.error(f"there is no mode {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    if args.record and args.peers != ",".join(PEERS):
        parser.error("the figures of --record are against the best of all modes of PyTorch: leave out --peers")
    return args


def main():
    args = parse_arguments()
    began = time.perf_counter()
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device"
    print(f"PyTorch {torch.__version__}, {where}; milliseconds per step, medians of {args.rounds} rounds")
    names = [name for name in args.nets.split(",") if name]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        if args.extra:
            measure_extra(args, folder)
        if names and not args.twice:
            print(f"{'net':14} {'eager':>8} {'plan':>8} {'torch':>8} {'graph':>8} {'compile':>8} {'both':>8} | {'ratio':>6} {'eager':>6} | "
                  f"{'launches':>11} | {'MiB: eager, plan, torch':>23}", flush=True)
        for name in names:
            if time.perf_counter() - began > args.seconds:
                print(f"{name}: not started; the time is over")
                continue
            (run_twice if args.twice else compare)(args, name, folder)


if __name__ == "__main__":
    main()
