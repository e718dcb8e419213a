#!/usr/bin/env python3
"""Writes transforms.bin: results of torchvision for the cases in transforms_cases.txt.

    python tests/golden/transforms_make.py

The file is "GDTRANS1", then for each case
    u64 key                the FNV-1a hash of its line
    u64 C, H, W            of the result
    its elements           u8 or f32
Everything is little-endian. Pixel (c, y, x) of a u8 input is ((31c + 7y + 5x + xy) 37 + xx / 3) mod 256; f32 inputs
are divided by 255.
"""
import os, struct

import torch

for name in ("nms", "qnms", "deform_conv2d"):  # torchvision requires its compiled ops, which transforms do not use
    try:
        getattr(torch.ops.torchvision, name)
    except (AttributeError, RuntimeError):
        torch.library.define(f"torchvision::{name}", "(Tensor x) -> Tensor")
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))


def key(line):
    h = 14695981039346656037
    for c in line.encode():
        h = ((h ^ c) * 1099511628211) % 2**64
    return h


def make_image(dtype, c, h, w):
    x = torch.tensor([[[((31 * k + 7 * i + 5 * j + i * j) * 37 + j * j // 3) % 256 for j in range(w)] for i in range(h)]
                      for k in range(c)])
    return x.to(torch.uint8) if dtype == "u8" else x.to(torch.float32) / 255


def apply_function(function, x, a):
    def n(i):
        return float(a[i])

    if function == "resize":
        t, l, h, w, oh, ow = (int(v) for v in a[:6])
        return F.resize(x[:, t:t + h, l:l + w], [oh, ow], InterpolationMode(a[6]), antialias=a[7] == "1")
    if function == "affine":
        return F.affine(x, n(0), [n(1), n(2)], n(3), [n(4), n(5)], InterpolationMode(a[6]))
    if function == "rotate":
        # torchvision blends the fill into edge pixels twice; this blends it once
        fill = n(3)
        y = F.rotate(x - fill if fill else x, n(0), InterpolationMode(a[1]), expand=a[2] == "1")
        return y + fill if fill else y
    if function in ("brightness", "contrast", "saturation", "hue"):
        return getattr(F, "adjust_" + function)(x, n(0))
    if function == "grayscale":
        return F.rgb_to_grayscale(x, int(a[0]))
    if function == "pad":
        return F.pad(x, [int(v) for v in a[:4]], fill=n(5), padding_mode=a[4])
    if function == "center_crop":
        return F.center_crop(x, [int(v) for v in a])
    if function == "flip":
        return F.horizontal_flip(x) if a[0] == "horizontal" else F.vertical_flip(x)
    if function == "normalize":
        return F.normalize(F.to_dtype(x, torch.float32, scale=True), [float(v) for v in a[::2]], [float(v) for v in a[1::2]])
    raise ValueError(function)


with open(os.path.join(HERE, "transforms_cases.txt")) as cases, open(os.path.join(HERE, "transforms.bin"), "wb") as out:
    out.write(b"GDTRANS1")
    for line in cases:
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        function, dtype, c, h, w, *arguments = line.split()
        y = apply_function(function, make_image(dtype, int(c), int(h), int(w)), arguments).contiguous()
        out.write(struct.pack("<4Q", key(line), *y.shape))
        out.write(y.numpy().tobytes())
