#!/usr/bin/env python3
"""Compares reading a folder of JPEGs in batches with PyTorch's DataLoader and torchvision's ImageFolder.

    python bench/images_peer.py [build/bench/bench_images] [--count 2000] [--workers 2]

Needs torch, torchvision, numpy and Pillow. The images, of about 400 x 300 pixels, are created in a temporary folder. Both
sides decode them, resize them to 224 x 224 and return batches of 64 as floats. Rounds alternate; prints the medians of the
images per second.
"""
import argparse
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np
import torch
from PIL import Image

try:
    import torchvision
except RuntimeError:  # its compiled ops are built for another torch; this script needs none of them
    library = torch.library.Library("torchvision", "DEF")
    for op in ("nms", "qnms"):
        library.define(op + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision
from torchvision import transforms
from torchvision.datasets import ImageFolder

ROUNDS = 5


def make_images(folder, count):
    """Smooth colours, edges and noise: about 25 KB each, as for photographs of this size."""
    rng = np.random.default_rng(1)
    for i in range(count):
        height, width = int(rng.integers(280, 320)), int(rng.integers(380, 420))
        small = rng.integers(0, 256, (12, 16, 3)).astype(np.uint8)
        image = np.asarray(Image.fromarray(small).resize((width, height), Image.BICUBIC)).astype(np.int16)
        image = image + rng.normal(0, 8, image.shape)
        name = os.path.join(folder, "class%d" % (i % 10))
        os.makedirs(name, exist_ok=True)
        Image.fromarray(np.clip(image, 0, 255).astype(np.uint8)).save(os.path.join(name, "%d.jpg" % i), quality=85)


def torch_rate(folder, workers):
    transform = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])
    data = ImageFolder(folder, transform)
    loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True, num_workers=workers,
                                         persistent_workers=workers > 0)
    for _ in loader:  # starts the workers, and fills the page cache
        break
    iterator = iter(loader)
    start, seen = time.perf_counter(), 0
    for images, _ in iterator:
        seen += len(images)
    return seen / (time.perf_counter() - start)


def our_rate(program, folder, workers):
    out = subprocess.run([program, folder, str(workers)], check=True, capture_output=True, text=True).stdout
    return float(out.split()[0])


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default=os.path.join(here, "..", "build", "bench", "bench_images"))
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_images(folder, args.count)
        bytes_each = sum(os.path.getsize(os.path.join(r, f)) for r, _, fs in os.walk(folder) for f in fs) / args.count
        print("%d images of %.0f KB, %d workers" % (args.count, bytes_each / 1000, args.workers))
        ours, theirs = [], []
        for _ in range(ROUNDS):
            ours.append(our_rate(args.program, folder, args.workers))
            theirs.append(torch_rate(folder, args.workers))
        ratio = statistics.median(a / b for a, b in zip(ours, theirs))
        print("Gradus %.0f images per second, PyTorch %.0f, ratio %.2f" %
              (statistics.median(ours), statistics.median(theirs), ratio))


if __name__ == "__main__":
    main()
