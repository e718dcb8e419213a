#!/usr/bin/env python3
"""Writes the files of tests/golden/pytorch with PyTorch 2.13, for tests/unit/io/test_pytorch.c.

    python tests/golden/pytorch_make.py
"""
import collections
import os
import sys
import types
import zipfile

import numpy as np
import torch

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pytorch")


class Block(torch.nn.Module):
    """A class that no reader of the file has."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 2, 3)
        self.norm = torch.nn.BatchNorm2d(2)
        self.register_buffer("scale", torch.tensor([1.5, -2.0]))
        self.register_buffer("scratch", torch.zeros(3), persistent=False)
        self.tied = self.conv
        self.note = "not in the state dict"

    def forward(self, x):
        return self.norm(self.conv(x)) * self.scale[0]


def fill(module):
    """Numbers that a test can check: 0, 1, 2, ... in each tensor."""
    with torch.no_grad():
        for t in module.state_dict().values():
            t.copy_(torch.arange(t.numel()).reshape(t.shape))
    return module


def checkpoint():
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    values = torch.tensor([0.0, 1.0, -2.0, 0.5])
    return {
        "model_state": collections.OrderedDict([
            ("lstm.weight", base), ("lstm.bias", torch.nn.Parameter(torch.tensor([0.25, -1.0, 3.0]))),
            ("transposed", base.t()), ("column", base[:, 1]), ("corner", base[1:3, 2:5]), ("same", base),
            ("strided", base[::2, ::3]), ("expanded", torch.tensor([[7.0]]).expand(2, 3)),
            ("empty", torch.zeros(2, 0, 3)), ("number", torch.tensor(42.5)),
        ]),
        "dtypes": {
            "f64": values.double(), "f16": values.half(), "bf16": values.bfloat16(), "i64": torch.tensor([-1, 2**40]),
            "i32": torch.tensor([-1, 2**30], dtype=torch.int32), "i8": torch.tensor([-128, 127], dtype=torch.int8),
            "u8": torch.tensor([0, 255], dtype=torch.uint8), "bool": torch.tensor([True, False, True]),
        },
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999)}]},
        "epoch": 7, "name": "Größe", "best": float("inf"), "done": False, "none": None, "large": 2**80,
        "many": {1, 2}, "device": torch.device("cpu"), "shape": torch.Size([2, 3]),
    }


def numpy_values():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    return {"row": a, "column": np.asfortranarray(a), "big": a.astype(">f4"), "ints": np.arange(4), "scalar": np.float64(0.1),
            "count": np.int64(-5), "text": np.array(["a", "b"]), "short": np.arange(3, dtype=np.int16), "tensor": torch.ones(2)}


def odd():
    quantized = torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.5, 0, torch.qint8)
    return {
        "good": torch.tensor([1.0, 2.0, 3.0]), "sparse": torch.eye(3).to_sparse(), "csr": torch.eye(3).to_sparse_csr(),
        "complex": torch.tensor([1 + 2j, 3j]), "quantized": quantized, "short": torch.tensor([1, 2], dtype=torch.int16),
        "meta": torch.empty(2, 3, device="meta"), "f8": torch.ones(2).to(torch.float8_e4m3fn),
        "u16": torch.tensor([1, 2], dtype=torch.uint16), "negative": torch.tensor([1 + 2j]).conj().imag,
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    }


def save(name, value, protocol=2, older=False):
    path = os.path.join(FOLDER, name)
    torch.save(value, path, pickle_protocol=protocol, _use_new_zipfile_serialization=not older)


def save_big_endian(name, tensors):
    """What a machine of the other byte order writes: the elements reversed, and a file that says so."""
    path = os.path.join(FOLDER, name)
    torch.save(tensors, path)
    with zipfile.ZipFile(path) as old:
        entries = [(e, old.read(e)) for e in old.namelist()]
    sizes = {str(i): t.element_size() for i, t in enumerate(tensors.values())}
    with zipfile.ZipFile(path, "w") as new:
        for entry, data in entries:
            size = sizes.get(entry.rpartition("/data/")[2], 1)
            data = b"".join(data[i:i + size][::-1] for i in range(0, len(data), size))
            new.writestr(zipfile.ZipInfo(entry), b"big" if entry.endswith("/byteorder") else data)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    for protocol in range(2, 6):
        save(f"archive_{protocol}.pt", checkpoint(), protocol)
        save(f"older_{protocol}.pt", checkpoint(), protocol, older=True)
    torch.manual_seed(0)
    Block.__module__ = "nowhere.models"
    block = fill(Block())
    sys.modules["nowhere"] = types.ModuleType("nowhere")
    sys.modules["nowhere.models"] = types.ModuleType("nowhere.models")
    sys.modules["nowhere.models"].Block = Block
    save("module.pt", block)
    save("module_older.pt", block, older=True)
    save("module_dict.pt", {"state_dict": {"module." + k: v for k, v in block.state_dict().items()}})
    save("numpy_2.pt", numpy_values(), 2)
    save("numpy_5.pt", numpy_values(), 5)
    save("odd.pt", odd())
    save("odd_older.pt", {k: v for k, v in odd().items() if k not in ("f8", "u16")}, older=True)
    save("one.pt", torch.arange(5))
    save_big_endian("big.pt", {"a": torch.tensor([1.0, -2.5]), "b": torch.arange(6).reshape(2, 3).t(), "c": torch.tensor([True])})
    block.eval()
    torch.jit.save(torch.jit.trace(block, torch.ones(1, 1, 3, 3)), os.path.join(FOLDER, "script.pt"))
    print(sum(os.path.getsize(os.path.join(FOLDER, f)) for f in os.listdir(FOLDER)), "bytes")


if __name__ == "__main__":
    main()
