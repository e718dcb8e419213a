#!/usr/bin/env python3
"""Trains the same net from the same weights on the same batches in Gradus and in PyTorch, and compares the losses.

    python bench/text_parity/text_parity.py FILE [--nets char_lstm,gpt] [--steps 1500] [--program build/bench/text_parity]

FILE is a text, such as the works of Shakespeare. Prints the mean losses of every 100 steps on both sides, and their ratio. The
exit code is 1 if a ratio differs from 1 by more than 1 %.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "tests", "golden"))
import zoo_sequence  # noqa: E402

EVERY, LENGTH = 100, 64


def make_net(net, vocabulary):
    if net == "gpt":
        return zoo_sequence.gpt(vocabulary, context=LENGTH, layers=4, heads=4, width=128)
    return zoo_sequence.char_lstm(vocabulary, embedding=64, hidden=256)


def train(net, folder, steps):
    weights = load_file(os.path.join(folder, "start.safetensors"))
    vocabulary = weights["transformer.wte.weight" if net == "gpt" else "embedding.weight"].shape[0]
    module = make_net(net, vocabulary)
    missing, unexpected = module.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.002)
    batches = torch.from_numpy(np.load(os.path.join(folder, "batches.npy")))
    means, total = [], 0.0
    for i in range(steps):
        x, y = batches[i, :, :-1], batches[i, :, 1:]
        scores = module(x)
        scores = scores[0] if isinstance(scores, tuple) else scores
        loss = F.cross_entropy(scores.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1)
        optimizer.step()
        total += loss.item()
        if (i + 1) % EVERY == 0:
            means.append(total / EVERY)
            total = 0.0
    return means


def main():
    sys.stdout.reconfigure(line_buffering=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--nets", default="char_lstm,gpt")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--program", default="build/bench/text_parity")
    args = parser.parse_args()
    worst = 0.0
    for net in args.nets.split(","):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([args.program, net, args.file, str(args.steps), folder], check=True, stdout=subprocess.DEVNULL)
            ours = [float(line) for line in open(os.path.join(folder, "losses.txt"))]
            theirs = train(net, folder, args.steps)
        print(f"{net:10} {'steps':>7} {'gradus':>8} {'PyTorch':>8} {'ratio':>8}")
        for i, (a, b) in enumerate(zip(ours, theirs)):
            print(f"{'':10} {(i + 1) * EVERY:7} {a:8.4f} {b:8.4f} {a / b:8.4f}")
            worst = max(worst, abs(a / b - 1))
    print(f"largest difference: {100 * worst:.3f} %")
    sys.exit(worst > 0.01)


if __name__ == "__main__":
    main()
