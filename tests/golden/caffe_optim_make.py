#!/usr/bin/env python3
"""Writes caffe_optim.bin: trajectories by the formulas of Caffe's solvers, in f64, for the cases in caffe_optim_cases.txt.

    python tests/golden/caffe_optim_make.py

It needs only NumPy. A net of two dense layers with tanh between them takes 50 steps; its parameters have the factors of
FACTORS (lr_mult and decay_mult). The file is "GDCAFFE1", the number of cases (u64), then for each case
    u64 key              the FNV-1a hash of its line
    f64 [50][5]          after each step: for w1, b1, w2, b2 the sum of element i times cos(i), then the rate of the step
    f64 [PARAMETERS]     all elements of w1, b1, w2, b2 at the end
Everything is little-endian.
"""
import math, os, struct

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, INPUTS, HIDDEN, OUTPUTS, BATCH, BATCHES = 50, 5, 7, 3, 8, 4
SHAPES = [(HIDDEN, INPUTS), (HIDDEN,), (OUTPUTS, HIDDEN), (OUTPUTS,)]
FACTORS = [(1, 1), (2, 0), (0.5, 2), (2, 0)]  # lr_mult, decay_mult
DEFAULTS = {"type": "SGD", "momentum": 0, "weight_decay": 0, "regularization_type": "L2", "delta": 1e-8, "momentum2": 0.999,
            "rms_decay": 0.99, "clip_gradients": -1, "iter_size": 1, "lr_policy": "fixed"}


def wave_data(dims, phase):
    i = np.arange(math.prod(dims), dtype=np.float64)
    return np.sin(0.7 * i * i + 1.3 * i + phase).reshape(dims)


def key(line):
    h = 14695981039346656037
    for c in line.encode():
        h = ((h ^ c) * 1099511628211) % 2**64
    return h


def parse(text):
    def value(v):
        if "," in v:
            return [int(n) for n in v.split(",")]
        try:
            return float(v)
        except ValueError:
            return v
    return {**DEFAULTS, **{k: value(v) for k, v in (word.split("=") for word in text.split())}}


def rate(s, t):
    base, policy = s["base_lr"], s["lr_policy"]
    if policy == "fixed":
        return base
    if policy == "step":
        return base * s["gamma"] ** (t // s["stepsize"])
    if policy == "exp":
        return base * s["gamma"] ** t
    if policy == "inv":
        return base * (1 + s["gamma"] * t) ** -s["power"]
    if policy == "multistep":
        return base * s["gamma"] ** sum(t >= v for v in s["stepvalue"])
    if policy == "poly":
        return base * (1 - t / s["max_iter"]) ** s["power"]
    if policy == "sigmoid":
        return base * (1 / (1 + math.exp(-s["gamma"] * (t - s["stepsize"]))))
    raise ValueError(policy)


def gradients(w, x, y):
    h = np.tanh(x @ w[0].T + w[1])
    d = 2 * (h @ w[2].T + w[3] - y) / y.size
    inner = (d @ w[2]) * (1 - h * h)
    return [inner.T @ x, inner.sum(0), d.T @ h, d.sum(0)]


def update(s, t, lr, g, h):
    """The update of a parameter; h is its history, which changes."""
    kind, mu, delta = s["type"], s["momentum"], s["delta"]
    if kind == "SGD":
        h[0] = lr * g + mu * h[0]
        return h[0]
    if kind == "Nesterov":
        before = h[0]
        h[0] = lr * g + mu * h[0]
        return (1 + mu) * h[0] - mu * before
    if kind == "AdaGrad":
        h[0] = h[0] + g * g
        return lr * (g / (np.sqrt(h[0]) + delta))
    if kind == "RMSProp":
        h[0] = (1 - s["rms_decay"]) * g * g + s["rms_decay"] * h[0]
        return lr * g / (np.sqrt(h[0]) + delta)
    if kind == "AdaDelta":
        h[0] = (1 - mu) * g * g + mu * h[0]
        step = g * np.sqrt((delta + h[1]) / (delta + h[0]))
        h[1] = (1 - mu) * step * step + mu * h[1]
        return lr * step
    if kind == "Adam":
        b1, b2 = mu, s["momentum2"]
        h[0] = (1 - b1) * g + b1 * h[0]
        h[1] = (1 - b2) * g * g + b2 * h[1]
        return lr * (math.sqrt(1 - b2 ** (t + 1)) / (1 - b1 ** (t + 1))) * (h[0] / (np.sqrt(h[1]) + delta))
    raise ValueError(kind)


def run_case(line):
    s = parse(line.split("|")[0])
    w = [wave_data(d, k) * 0.5 for k, d in enumerate(SHAPES)]
    history, rows, n = [[np.zeros(d), np.zeros(d)] for d in SHAPES], [], 0
    for t in range(STEPS):
        g = [np.zeros(d) for d in SHAPES]
        for _ in range(int(s["iter_size"])):
            x, y = wave_data((BATCH, INPUTS), 10 + n % BATCHES), wave_data((BATCH, OUTPUTS), 20 + n % BATCHES)
            g = [a + b for a, b in zip(g, gradients(w, x, y))]
            n += 1
        norm = math.sqrt(sum((v * v).sum() for v in g))
        if 0 <= s["clip_gradients"] < norm:
            g = [v * (s["clip_gradients"] / norm) for v in g]
        g = [v / s["iter_size"] for v in g]
        lr = rate(s, t)
        for k, (lr_mult, decay_mult) in enumerate(FACTORS):
            of = np.sign(w[k]) if s["regularization_type"] == "L1" else w[k]
            w[k] = w[k] - update(s, t, lr * lr_mult, g[k] + s["weight_decay"] * decay_mult * of, history[k])
        rows.append([float((p.flatten() * np.cos(np.arange(p.size))).sum()) for p in w] + [lr])
    return rows, [float(v) for p in w for v in p.flatten()]


def main():
    with open(os.path.join(HERE, "caffe_optim_cases.txt")) as f:
        lines = [l.rstrip("\n") for l in f if l.strip() and not l.startswith("#")]
    with open(os.path.join(HERE, "caffe_optim.bin"), "wb") as out:
        out.write(b"GDCAFFE1" + struct.pack("<Q", len(lines)))
        for line in lines:
            rows, last = run_case(line)
            flat = [v for row in rows for v in row] + last
            assert all(math.isfinite(v) for v in flat), line
            out.write(struct.pack("<Q%dd" % len(flat), key(line), *flat))
            print(f"{line}: {rows[-1][0]:.6f} {rows[-1][4]:.6g}")


main()
