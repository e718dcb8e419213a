#!/usr/bin/env python3
"""Writes tests/golden/images: small images of every kind, and pixels.npz with the pixels that Pillow decodes.

    python3 tests/golden/images_make.py

Needs numpy and Pillow. Pillow writes neither 16-bit nor interlaced PNG; this script builds them itself.
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


def smooth_image(height, width, channels):
    """Slowly changing colors with some noise, as in photographs."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 100 * np.sin(x / (3 + c) + y / (5 - c) + c) for c in range(channels)]
    a = np.stack(planes, -1) + rng.normal(0, 6, (height, width, channels))
    return np.clip(a, 0, 255).astype(np.uint8)


def store_pixels(name, a):
    """Stores pixels (H, W) or (H, W, C) in the library's layout (C, H, W)."""
    a = np.asarray(a)
    pixels[name] = np.ascontiguousarray(a[None] if a.ndim == 2 else a.transpose(2, 0, 1)).astype(np.uint8)


def store_decoded(name, mode=None):
    image = Image.open(path(name))
    store_pixels(name, image.convert(mode) if mode else image)


def write_jpeg(name, array, mode=None, **options):
    Image.fromarray(array.squeeze(), mode).save(path(name), "JPEG", **options)
    store_decoded(name, "RGB" if mode == "CMYK" else None)


write_jpeg("rgb420.jpg", smooth_image(17, 23, 3), quality=80)
write_jpeg("rgb422.jpg", smooth_image(9, 31, 3), quality=70, subsampling=1)
write_jpeg("rgb444.jpg", smooth_image(16, 16, 3), quality=90, subsampling=0)
write_jpeg("grey.jpg", smooth_image(13, 19, 1), quality=80)
write_jpeg("progressive.jpg", smooth_image(25, 18, 3), quality=60, progressive=True)
write_jpeg("restart.jpg", smooth_image(20, 40, 3), quality=60, restart_marker_blocks=1)
write_jpeg("cmyk.jpg", smooth_image(12, 10, 4), "CMYK", quality=80)
write_jpeg("dot.jpg", smooth_image(1, 1, 3))
write_jpeg("large.jpg", smooth_image(64, 48, 3), quality=40)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def scanlines(a, depth):
    """Encodes rows (H, W, C) with this depth and filter 0; every third row has filter 2 (minus the row above)."""
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


def write_png(name, a, depth, kind, interlace=False, palette=None, transparent=None):
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
    write_png("grey%d.png" % depth, a, depth, GREY)
    store_decoded("grey%d.png" % depth, "L")
    colours = rng.integers(0, 256, (1 << depth, 3)).astype(np.uint8)
    write_png("palette%d.png" % depth, a, depth, PALETTE, palette=colours)
    store_decoded("palette%d.png" % depth, "RGB")
    assert (pixels["palette%d.png" % depth] == colours[a].transpose(2, 0, 1)).all()

a = rng.integers(0, 65536, (6, 5))
write_png("grey16.png", a, 16, GREY)
store_pixels("grey16.png", a >> 8)
a = rng.integers(0, 65536, (6, 5, 3))
write_png("rgb16.png", a, 16, RGB)
store_decoded("rgb16.png")
assert (pixels["rgb16.png"] == (a >> 8).transpose(2, 0, 1)).all()
write_png("rgb.png", smooth_image(9, 8, 3), 8, RGB)
store_decoded("rgb.png")
write_png("interlaced.png", smooth_image(19, 13, 3), 8, RGB, interlace=True)
store_decoded("interlaced.png")
write_png("interlaced1.png", rng.integers(0, 2, (11, 9)), 1, GREY, interlace=True)
store_decoded("interlaced1.png", "L")

# alpha channels: kept, and blended with black
for name, a, depth, kind, mode in (("rgba.png", rng.integers(0, 256, (5, 7, 4)), 8, RGBA, "RGBA"),
                                   ("grey_alpha.png", rng.integers(0, 256, (5, 7, 2)), 8, GREY_ALPHA, "LA"),
                                   ("rgba16.png", rng.integers(0, 65536, (5, 7, 4)), 16, RGBA, "RGBA")):
    write_png(name, a, depth, kind)
    store_decoded(name, mode)
    pixels[name + " alpha"] = pixels.pop(name)
    full = pixels[name + " alpha"].astype(np.int64)
    t = full[:-1] * full[-1:] + 128
    pixels[name] = ((t + (t >> 8)) >> 8).astype(np.uint8)
write_png("palette_alpha.png", rng.integers(0, 4, (5, 7)), 2, PALETTE, palette=colours[:4], transparent=bytes([0, 99, 255]))
store_decoded("palette_alpha.png", "RGBA")
pixels["palette_alpha.png alpha"] = pixels.pop("palette_alpha.png")

# conversions between grey and RGB
store_pixels("rgb.png grey", Image.open(path("rgb.png")).convert("L"))
store_pixels("grey8.png rgb", Image.open(path("grey8.png")).convert("RGB"))

# sizes (width, height), resized along the width first, which is not always Pillow's order
for name in ("rgb.png", "grey8.png", "interlaced.png", "interlaced1.png"):
    for size in ((8, 8), (23, 9), (40, 50), (5, 17), (1, 1), (100, 3)):
        image = Image.open(path(name))
        image = image.convert("L") if image.mode == "1" else image
        store_pixels("%s %dx%d" % (name, *size), image.resize((size[0], image.height), Image.BILINEAR).resize(size, Image.BILINEAR))

a = smooth_image(4, 5, 3)
with open(path("text.ppm"), "wb") as f:
    f.write(b"P3 # a comment\n5 4\n255\n" + b" ".join(b"%d" % v for v in a.reshape(-1)) + b"\n")
store_pixels("text.ppm", a)
with open(path("bytes.ppm"), "wb") as f:
    f.write(b"P6\n#\n5 4 255\n" + a.tobytes())
store_pixels("bytes.ppm", a)
g = rng.integers(0, 65536, (4, 5))
with open(path("wide.pgm"), "wb") as f:
    f.write(b"P5 5 4 65535\n" + g.astype(">u2").tobytes())
store_pixels("wide.pgm", np.round(g / 65535 * 255))
g = rng.integers(0, 8, (4, 5))
with open(path("text.pgm"), "wb") as f:
    f.write(b"P2 5 4 7 " + b" ".join(b"%d" % v for v in g.reshape(-1)))
store_pixels("text.pgm", np.floor(g * 255 / 7 + 0.5))
b = rng.integers(0, 2, (4, 11))
with open(path("text.pbm"), "wb") as f:
    f.write(b"P1 11 4\n" + b"\n".join(b"".join(b"%d" % v for v in row) for row in b))
store_pixels("text.pbm", 255 * (1 - b))
with open(path("bits.pbm"), "wb") as f:
    f.write(b"P4 11 4\n" + np.packbits(b, axis=1).tobytes())
store_pixels("bits.pbm", 255 * (1 - b))

np.savez_compressed(path("pixels.npz"), **pixels)
print(len(pixels), "images, the largest file has", max(os.path.getsize(path(n)) for n in os.listdir(folder)), "bytes")
