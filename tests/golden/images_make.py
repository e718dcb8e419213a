#!/usr/bin/env python3
"""Writes tests/golden/images: small images of every kind, and in pixels.npz what Pillow decodes.

    python3 tests/golden/images_make.py

Needs numpy and Pillow. Pillow writes neither PNG of 16 bits nor interlaced PNG; those are put together here.
"""
import os
import struct
import zlib

import numpy as np
from PIL import Image

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "images")
os.makedirs(folder, exist_ok=True)
rng = np.random.default_rng(1)
pixels = {}


def path(name):
    return os.path.join(folder, name)


def smooth(height, width, channels):
    """Colours that change slowly, and some noise: what JPEG is made for."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 100 * np.sin(x / (3 + c) + y / (5 - c) + c) for c in range(channels)]
    a = np.stack(planes, -1) + rng.normal(0, 6, (height, width, channels))
    return np.clip(a, 0, 255).astype(np.uint8)


def keep(name, a):
    """Pixels (H, W) or (H, W, C) as the library has them: (C, H, W)."""
    a = np.asarray(a)
    pixels[name] = np.ascontiguousarray(a[None] if a.ndim == 2 else a.transpose(2, 0, 1)).astype(np.uint8)


def decoded(name, mode=None):
    image = Image.open(path(name))
    keep(name, image.convert(mode) if mode else image)


def jpeg(name, array, mode=None, **options):
    Image.fromarray(array.squeeze(), mode).save(path(name), "JPEG", **options)
    decoded(name, "RGB" if mode == "CMYK" else None)


jpeg("rgb420.jpg", smooth(17, 23, 3), quality=80)
jpeg("rgb422.jpg", smooth(9, 31, 3), quality=70, subsampling=1)
jpeg("rgb444.jpg", smooth(16, 16, 3), quality=90, subsampling=0)
jpeg("grey.jpg", smooth(13, 19, 1), quality=80)
jpeg("progressive.jpg", smooth(25, 18, 3), quality=60, progressive=True)
jpeg("restart.jpg", smooth(20, 40, 3), quality=60, restart_marker_blocks=1)
jpeg("cmyk.jpg", smooth(12, 10, 4), "CMYK", quality=80)
jpeg("dot.jpg", smooth(1, 1, 3))
jpeg("large.jpg", smooth(64, 48, 3), quality=40)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def scanlines(a, depth):
    """Rows (H, W, C) of this depth, each with filter 0 or, every third, 2 (what is above, subtracted)."""
    height, width, channels = a.shape
    if depth == 16:
        rows = a.astype(">u2").view(np.uint8).reshape(height, -1)
    elif depth == 8:
        rows = a.astype(np.uint8).reshape(height, -1)
    else:
        bits = np.unpackbits(a.astype(np.uint8).reshape(height, -1, 1), axis=2)[:, :, 8 - depth:]
        rows = np.packbits(bits.reshape(height, -1), axis=1)
    out = b""
    for y in range(height):
        if y % 3 == 1:
            out += b"\2" + (rows[y] - rows[y - 1]).astype(np.uint8).tobytes()
        else:
            out += b"\0" + rows[y].tobytes()
    return out


def png(name, a, depth, kind, interlace=False, palette=None, transparent=None):
    a = a if a.ndim == 3 else a[..., None]
    height, width = a.shape[:2]
    data = scanlines(a, depth)
    if interlace:
        data = b""
        for y0, x0, dy, dx in ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
                               (1, 0, 2, 1)):
            part = a[y0::dy, x0::dx]
            if part.size:
                data += scanlines(part, depth)
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlace))
    if palette is not None:
        out += chunk(b"PLTE", palette.tobytes())
    if transparent is not None:
        out += chunk(b"tRNS", transparent)
    packed = zlib.compress(data, 9)
    half = len(packed) // 2
    out += chunk(b"IDAT", packed[:half]) + chunk(b"IDAT", packed[half:]) + chunk(b"IEND", b"")
    with open(path(name), "wb") as f:
        f.write(out)


GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
for depth in (1, 2, 4, 8):
    a = rng.integers(0, 1 << depth, (7, 11))
    png("grey%d.png" % depth, a, depth, GREY)
    decoded("grey%d.png" % depth, "L")
    colours = rng.integers(0, 256, (1 << depth, 3)).astype(np.uint8)
    png("palette%d.png" % depth, a, depth, PALETTE, palette=colours)
    decoded("palette%d.png" % depth, "RGB")
    assert (pixels["palette%d.png" % depth] == colours[a].transpose(2, 0, 1)).all()

a = rng.integers(0, 65536, (6, 5))
png("grey16.png", a, 16, GREY)
keep("grey16.png", a >> 8)
a = rng.integers(0, 65536, (6, 5, 3))
png("rgb16.png", a, 16, RGB)
decoded("rgb16.png")
assert (pixels["rgb16.png"] == (a >> 8).transpose(2, 0, 1)).all()
png("rgb.png", smooth(9, 8, 3), 8, RGB)
decoded("rgb.png")
png("interlaced.png", smooth(19, 13, 3), 8, RGB, interlace=True)
decoded("interlaced.png")
png("interlaced1.png", rng.integers(0, 2, (11, 9)), 1, GREY, interlace=True)
decoded("interlaced1.png", "L")

# alpha: kept, and blended with black
for name, a, depth, kind, mode in (("rgba.png", rng.integers(0, 256, (5, 7, 4)), 8, RGBA, "RGBA"),
                                   ("grey_alpha.png", rng.integers(0, 256, (5, 7, 2)), 8, GREY_ALPHA, "LA"),
                                   ("rgba16.png", rng.integers(0, 65536, (5, 7, 4)), 16, RGBA, "RGBA")):
    png(name, a, depth, kind)
    decoded(name, mode)
    pixels[name + " alpha"] = pixels.pop(name)
    full = pixels[name + " alpha"].astype(np.int64)
    t = full[:-1] * full[-1:] + 128
    pixels[name] = ((t + (t >> 8)) >> 8).astype(np.uint8)
png("palette_alpha.png", rng.integers(0, 4, (5, 7)), 2, PALETTE, palette=colours[:4], transparent=bytes([0, 99, 255]))
decoded("palette_alpha.png", "RGBA")
pixels["palette_alpha.png alpha"] = pixels.pop("palette_alpha.png")

# channels
keep("rgb.png grey", Image.open(path("rgb.png")).convert("L"))
keep("grey8.png rgb", Image.open(path("grey8.png")).convert("RGB"))

# sizes (width, height): rows first, then columns, which is not always Pillow's order
for name in ("rgb.png", "grey8.png", "interlaced.png", "interlaced1.png"):
    for size in ((8, 8), (23, 9), (40, 50), (5, 17), (1, 1), (100, 3)):
        image = Image.open(path(name))
        image = image.convert("L") if image.mode == "1" else image
        keep("%s %dx%d" % (name, *size), image.resize((size[0], image.height), Image.BILINEAR).resize(size, Image.BILINEAR))

a = smooth(4, 5, 3)
with open(path("text.ppm"), "wb") as f:
    f.write(b"P3 # a comment\n5 4\n255\n" + b" ".join(b"%d" % v for v in a.reshape(-1)) + b"\n")
keep("text.ppm", a)
with open(path("bytes.ppm"), "wb") as f:
    f.write(b"P6\n#\n5 4 255\n" + a.tobytes())
keep("bytes.ppm", a)
g = rng.integers(0, 65536, (4, 5))
with open(path("wide.pgm"), "wb") as f:
    f.write(b"P5 5 4 65535\n" + g.astype(">u2").tobytes())
keep("wide.pgm", np.round(g / 65535 * 255))
g = rng.integers(0, 8, (4, 5))
with open(path("text.pgm"), "wb") as f:
    f.write(b"P2 5 4 7 " + b" ".join(b"%d" % v for v in g.reshape(-1)))
keep("text.pgm", np.floor(g * 255 / 7 + 0.5))
b = rng.integers(0, 2, (4, 11))
with open(path("text.pbm"), "wb") as f:
    f.write(b"P1 11 4\n" + b"\n".join(b"".join(b"%d" % v for v in row) for row in b))
keep("text.pbm", 255 * (1 - b))
with open(path("bits.pbm"), "wb") as f:
    f.write(b"P4 11 4\n" + np.packbits(b, axis=1).tobytes())
keep("bits.pbm", 255 * (1 - b))

np.savez_compressed(path("pixels.npz"), **pixels)
print(len(pixels), "images, the largest file has", max(os.path.getsize(path(n)) for n in os.listdir(folder)), "bytes")
