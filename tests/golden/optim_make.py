#!/usr/bin/env python3
"""Writes optim.bin: PyTorch's trajectories for the cases in optim_cases.txt.

    python tests/golden/optim_make.py

A net of two dense layers with tanh between them, in f64, takes 100 steps. Group 0 has the first layer, group 1 the
second. The file is "GDOPTIM1", the number of cases (u64), then for each case
    u64 key                the FNV-1a hash of its line
    f64 [100][6]           after each step: for w1, b1, w2, b2 the sum of element i times cos(i), then both learning rates
    f64 [PARAMETERS]       all elements of w1, b1, w2, b2 at the end
Everything is little-endian.
"""
import math, os, struct

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, INPUTS, HIDDEN, OUTPUTS, BATCH = 100, 5, 7, 3, 8
SHAPES = [(HIDDEN, INPUTS), (HIDDEN,), (OUTPUTS, HIDDEN), (OUTPUTS,)]


def wave_data(dims, phase):
    n = math.prod(dims)
    return torch.tensor([math.sin(0.7 * i * i + 1.3 * i + phase) for i in range(n)], dtype=torch.float64).reshape(dims)


def key(line):
    h = 14695981039346656037
    for c in line.encode():
        h = ((h ^ c) * 1099511628211) % 2**64
    return h


def parse_value(text):
    if text in ("true", "false"):
        return text == "true"
    if "," in text:
        return [int(v) for v in text.split(",")]
    try:
        return float(text) if "." in text or "e" in text else int(text)
    except ValueError:
        return text


def parse_options(text):
    return {k: parse_value(v) for k, v in (word.split("=") for word in text.split())}


def torch_options(o, defaults=None):
    o = dict(o)
    if "initial_accumulator" in o:
        o["initial_accumulator_value"] = o.pop("initial_accumulator")
    if "beta1" in o or "beta2" in o:
        before = defaults["betas"] if defaults else (0.9, 0.999)
        o["betas"] = (o.pop("beta1", before[0]), o.pop("beta2", before[1]))
    return o


def make_optimizer(name, first, second, w):
    make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
            "rmsprop": torch.optim.RMSprop, "adagrad": torch.optim.Adagrad,
            "adadelta": torch.optim.Adadelta}[name]
    optimizer = make(w[:2], **torch_options(parse_options(first)), foreach=False)
    optimizer.add_param_group({"params": w[2:], **torch_options(parse_options(second), optimizer.defaults)})
    return optimizer


def make_schedule(text, optimizer):
    if not text:
        return None
    name, *rest = text.split()
    o = parse_options(" ".join(rest))
    warmup, start = o.pop("warmup", 0), o.pop("warmup_start", 0)
    s = torch.optim.lr_scheduler

    def main():
        if name == "constant":
            return s.ConstantLR(optimizer, factor=o.get("factor", 1), total_iters=o.get("steps", 0))
        if name == "step":
            return s.StepLR(optimizer, o["size"], gamma=o.get("gamma", 0.1))
        if name == "multistep":
            return s.MultiStepLR(optimizer, o["milestones"], gamma=o.get("gamma", 0.1))
        if name == "exponential":
            return s.ExponentialLR(optimizer, o["gamma"])
        if name == "linear":
            return s.LinearLR(optimizer, o.get("start", 1 / 3), o.get("end", 1), o.get("steps", 5))
        if name == "polynomial":
            return s.PolynomialLR(optimizer, o.get("steps", 5), o.get("power", 1))
        if name == "cosine":
            return s.CosineAnnealingLR(optimizer, o["steps"], o.get("min_lr", 0))
        if name == "one_cycle":
            return s.OneCycleLR(optimizer, [g["lr"] for g in optimizer.param_groups], total_steps=o["steps"],
                                pct_start=o.get("rise", 0.3), anneal_strategy=o.get("anneal", "cos"), cycle_momentum=False,
                                div_factor=o.get("div_factor", 25), final_div_factor=o.get("final_div_factor", 1e4))
        raise ValueError(name)

    if not warmup:
        return main()
    base = [g["lr"] for g in optimizer.param_groups]
    up = s.LambdaLR(optimizer, lambda t: start + (1 - start) * min(t, warmup) / warmup)
    for g, lr in zip(optimizer.param_groups, base):
        g["lr"] = lr
    return s.SequentialLR(optimizer, [up, main()], milestones=[warmup])


def run_case(line):
    parts = [p.strip() for p in line.split("|")] + [""] * 5
    more = parse_options(parts[4])
    w = [torch.nn.Parameter(wave_data(d, k) * 0.5) for k, d in enumerate(SHAPES)]
    optimizer = make_optimizer(parts[0], parts[1], parts[2], w)
    schedule = make_schedule(parts[3], optimizer)
    rows = []
    for step in range(STEPS):
        x, y = wave_data((BATCH, INPUTS), 10 + step % 4), wave_data((BATCH, OUTPUTS), 20 + step % 4)
        w[1].requires_grad_(step >= more.get("frozen", 0))
        optimizer.zero_grad()
        h = torch.tanh(x @ w[0].T + w[1])
        ((h @ w[2].T + w[3] - y) ** 2).mean().backward()
        if "clip_norm" in more:
            torch.nn.utils.clip_grad_norm_(w, more["clip_norm"])
        if "clip_value" in more:
            torch.nn.utils.clip_grad_value_(w, more["clip_value"])
        optimizer.step()
        if schedule:
            schedule.step()
        sums = [sum(v * math.cos(i) for i, v in enumerate(p.detach().flatten().tolist())) for p in w]
        rows.append(sums + [g["lr"] for g in optimizer.param_groups])
    return rows, [v for p in w for v in p.detach().flatten().tolist()]


def main():
    with open(os.path.join(HERE, "optim_cases.txt")) as f:
        lines = [l.rstrip("\n") for l in f if l.strip() and not l.startswith("#")]
    with open(os.path.join(HERE, "optim.bin"), "wb") as out:
        out.write(b"GDOPTIM1" + struct.pack("<Q", len(lines)))
        for line in lines:
            rows, last = run_case(line)
            flat = [v for row in rows for v in row] + last
            assert all(math.isfinite(v) for v in flat), line
            out.write(struct.pack("<Q%dd" % len(flat), key(line), *flat))
            print(f"{line}: {rows[-1][0]:.6f} {rows[-1][4]:.6g}")


main()
