#!/usr/bin/env python3
"""Writes the golden files: PyTorch's results and gradients for every test case.

    python tests/golden/make.py [--tests build/tests/test_ops] [FAMILY ...]

Needs a Python with torch and numpy, and the built test program, which reads tests/cases/ and prints
the cases, their options and their data (`test_ops --dump`), so that both sides compute with the same
numbers. The tests themselves need no Python: they read the files written here.

A file is "GDGOLD01", the number of entries (u32), 0 (u32), then the entries. An entry is
    u64 key       hash of op, case text, torch line and dtype: a changed case has another key
    u8  missing   1: PyTorch does not support the call for this dtype
    u8  n_out, u8 n_grad, u8 0
    n_out outputs (the inputs that the call has written follow the results), then n_grad gradients,
    one for each input tensor. A tensor is
        u8 dtype (0: none), u8 rank, u8 sampled, u8 0, u32 dims[rank]
        all elements, row-major; or, if there are more than 96, the 48 elements at i = j*(n-1)/47 and
        f64 weighted sum of the finite elements, f64 sum of their absolute values,
        u32 number of non-finite elements; for integers u64 sum of x[i]*(2i+1), wrapping, and zeros
Everything is little-endian.
"""
import argparse, json, math, os, struct, subprocess, sys

# no AMX for bf16: some virtual machines report it, but its instructions fail
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import numpy as np
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
CODES = {"bool": 1, "u8": 2, "i8": 3, "i32": 4, "i64": 5, "f16": 6, "bf16": 7, "f32": 8, "f64": 9}
TORCH = {"bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64,
         "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
NAMES = {v: k for k, v in TORCH.items()}
MAX_COMPLETE, SAMPLES = 96, 48


def weights(k, n):
    """The weights of output k in the loss; loss_weight() in harness/data.c is the same formula."""
    i = np.arange(n, dtype=np.uint64)
    h = (i * 2654435761 + k * 40503 + 12345) & 0xFFFFFFFF
    return (h >> 16).astype(np.float64) / 65536.0 - 0.5


def read_tensor(stream, t):
    if t["dtype"] is None:
        return None
    dtype = TORCH[t["dtype"]]
    count = math.prod(t["dims"])
    raw = stream.read(count * dtype.itemsize)
    if count == 0:
        return torch.empty(t["dims"], dtype=dtype)
    return torch.frombuffer(bytearray(raw), dtype=dtype).reshape(t["dims"]).clone()


def bits(t):
    """A tensor's elements as a numpy array of the same width."""
    t = t.detach().contiguous()
    return (t.view(torch.int16) if t.dtype == torch.bfloat16 else t).numpy().reshape(-1)


def pack(t):
    if t is None:
        return bytes(4)
    if t.dtype == torch.int16:  # not a dtype of ours: see the promotion table in dtype.h
        t = t.to(torch.int32)
    n = t.numel()
    head = struct.pack("<BBBB", CODES[NAMES[t.dtype]], t.dim(), n > MAX_COMPLETE, 0)
    head += b"".join(struct.pack("<I", d) for d in t.shape)
    data = bits(t)
    if n <= MAX_COMPLETE:
        return head + data.tobytes()
    at = [j * (n - 1) // (SAMPLES - 1) for j in range(SAMPLES)]
    if not t.is_floating_point():
        odd = 2 * np.arange(n, dtype=np.uint64) + 1
        total = int((data.astype(np.int64).view(np.uint64) * odd).sum(dtype=np.uint64))
        return head + data[at].tobytes() + struct.pack("<QdI", total, 0.0, 0)
    values = t.detach().contiguous().to(torch.float64).numpy().reshape(-1)
    finite = np.isfinite(values)
    some = np.where(finite, values, 0.0)
    sums = struct.pack("<ddI", float((some * weights(7, n)).sum()), float(np.abs(some).sum()), int((~finite).sum()))
    return head + data[at].tobytes() + sums


def option(value):
    return TORCH[value["dtype"]] if isinstance(value, dict) else value


def bound(x, value):
    """An option of an op on x as PyTorch expects it: if x has integers, an integral value is an int, an infinite one None."""
    if x.is_floating_point() or (math.isfinite(value) and value != math.trunc(value)):
        return value
    return int(value) if math.isfinite(value) else None


def evaluate(case, tensors):
    """Returns the results of the torch line and the gradients of their weighted sum."""
    names = {"torch": torch, "F": F, "math": math, "inf": math.inf, "nan": math.nan, "bound": bound}
    names.update({name: option(value) for name, value in case["options"].items()})
    for t, info in zip(tensors, case["tensors"]):
        if case["grad"] and t is not None and t.is_floating_point() and not info["mutated"]:
            t.requires_grad_(True)
    for param in case["names"]:
        mine = [t for t, info in zip(tensors, case["tensors"]) if info["name"] == param["name"]]
        names[param["name"]] = mine if param["list"] else mine[0]
    result = eval(case["torch"], names)
    outs = list(result) if isinstance(result, (tuple, list)) else [result]
    grads = []
    if case["grad"]:
        loss = [(o, torch.from_numpy(weights(k, o.numel())).reshape(o.shape).to(o.dtype))
                for k, o in enumerate(outs) if o.is_floating_point() and o.requires_grad]
        by = [t for t in tensors if t is not None and t.requires_grad]
        found = torch.autograd.grad([o for o, _ in loss], by, [w for _, w in loss], allow_unused=True) if loss else [None] * len(by)
        found = dict(zip(map(id, by), found))
        grads = [found.get(id(t)) for t in tensors]
    outs += [t for t, info in zip(tensors, case["tensors"]) if t is not None and info["mutated"]]
    return outs, grads


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("families", nargs="*", help="default: all files of tests/cases")
    args.add_argument("--tests", default=os.path.join(HERE, "..", "..", "build", "tests", "test_ops"))
    args = args.parse_args()
    torch.set_num_threads(1)
    families = args.families or sorted(f[:-4] for f in os.listdir(os.path.join(HERE, "..", "cases")) if f.endswith(".txt"))
    wrong = 0
    for family in families:
        process = subprocess.Popen([args.tests, "--dump", "--family", family], stdout=subprocess.PIPE)
        stream, entries, unsupported = process.stdout, [], 0
        while line := stream.readline():
            case = json.loads(line)
            tensors = [read_tensor(stream, t) for t in case["tensors"]]
            try:
                outs, grads = evaluate(case, tensors)
                body = struct.pack("<BBBB", 0, len(outs), len(grads), 0) + b"".join(map(pack, outs + grads))
            except Exception as error:
                if case["dtype"] in ("f32", "f64", "-"):
                    print(f"{case['where']}: {case['op']} ({case['dtype']}): {error}", file=sys.stderr)
                    wrong += 1
                    continue
                unsupported += 1
                body = struct.pack("<BBBB", 1, 0, 0, 0)
            entries.append(struct.pack("<Q", int(case["key"], 16)) + body)
        wrong += process.wait() != 0
        data = b"GDGOLD01" + struct.pack("<II", len(entries), 0) + b"".join(entries)
        with open(os.path.join(HERE, family + ".bin"), "wb") as f:
            f.write(data)
        print(f"{family}: {len(entries)} results, {unsupported} unsupported, {len(data)} bytes")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
