"""The Python side of test_tensorboard.c: python tensorboard_python.py FOLDER EXPECTED.

TensorBoard's own readers read the event files of a folder. The lines of EXPECTED list what they must find:

    scalar TAG STEP VALUE ...              all points of a tag, in order
    histogram TAG STEP MIN MAX NUM SUM SQUARES
    node NAME OP [INPUT,...]
    nodes COUNT
    image TAG STEP WIDTH HEIGHT
    text TAG STEP TEXT
"""
import os
import sys

import numpy as np
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

folder, expected = sys.argv[1:]
board = event_accumulator.EventAccumulator(
    folder, size_guidance={event_accumulator.SCALARS: 0, event_accumulator.HISTOGRAMS: 0})
board.Reload()
tags = board.Tags()
graph = None


def scalar(tag, *points):
    found = [(e.step, np.float32(e.value)) for e in board.Scalars(tag)]
    expected_points = [(int(s), np.float32(v)) for s, v in zip(points[::2], points[1::2])]
    same = len(found) == len(expected_points) and all(
        a == c and (b == d or (np.isnan(b) and np.isnan(d))) for (a, b), (c, d) in zip(found, expected_points))
    assert same, f"{tag}: {found}, not {expected_points}"


def histogram(tag, step, *numbers):
    h = [e for e in board.Histograms(tag) if e.step == int(step)]
    assert len(h) == 1, f"{tag}: {len(h)} histograms of step {step}"
    v = h[0].histogram_value
    found = [v.min, v.max, v.num, v.sum, v.sum_squares]
    assert np.allclose(found, [float(n) for n in numbers], rtol=1e-12), f"{tag}: {found}, not {numbers}"
    assert abs(sum(v.bucket) - v.num) < 1e-9 and len(v.bucket) == len(v.bucket_limit)
    assert all(a < b for a, b in zip(v.bucket_limit, v.bucket_limit[1:])) and v.bucket_limit[-1] > v.max


def node(name, op, inputs=""):
    found = [n for n in board.Graph().node if n.name == name]
    assert len(found) == 1, f"{name}: there are {sorted(n.name for n in board.Graph().node)}"
    assert found[0].op == op, f"{name} is {found[0].op}"
    assert list(found[0].input) == inputs.split(",") * bool(inputs), f"{name} has {list(found[0].input)}"


def nodes(count):
    names = [n.name for n in board.Graph().node]
    assert len(names) == int(count) == len(set(names)), names
    for n in board.Graph().node:  # every edge starts at a node
        for i in n.input:
            assert i.split(":")[0] in names, f"{n.name} reads {i}"


def image(tag, step, width, height):
    found = [(e.step, e.width, e.height) for e in board.Images(tag)]
    assert found == [(int(step), int(width), int(height))], f"{tag}: {found}"
    assert board.Images(tag)[0].encoded_image_string.startswith(b"\x89PNG")


def text(tag, step, *words):
    found = [e for e in board.Tensors(tag) if e.step == int(step)]
    assert [t.decode() for t in found[0].tensor_proto.string_val] == [" ".join(words)], found
    assert board.SummaryMetadata(tag).plugin_data.plugin_name == "text"


for line in open(expected):
    word, *rest = line.split()
    globals()[word](*rest)

# every record of every file is readable, and the first one has the version
for name in sorted(os.listdir(folder)):
    events = list(EventFileLoader(os.path.join(folder, name)).Load())
    assert events[0].file_version == "brain.Event:2" and events[0].wall_time > 1.5e9
