#!/usr/bin/env python3
"""Runs the `torch` lines of tests/cases with gradus.torch in PyTorch's place.

    PYTHONPATH=build/python python3 tests/python/golden.py [--tests build/tests/test_ops] [FAMILY ...]

Each line is evaluated as it stands, as tests/golden/make.py did under PyTorch, on the same inputs, which
`test_ops --dump` prints. Results and gradients are compared with the golden files, with the tolerances of the C
tests. A line passes if all its cases do, in all dtypes. OTHERS has the lines and cases that cannot pass, and why: each
of them must fail, so that the list stays true. The test needs neither PyTorch nor NumPy.
"""
import argparse, array, json, logging, math, os, struct, subprocess, sys
from typing import NamedTuple

import gradus
import gradus.torch as torch
import gradus.torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
CASES, GOLDEN = os.path.join(HERE, "..", "cases"), os.path.join(HERE, "..", "golden")
LETTERS = {"bool": "?", "u8": "B", "i8": "b", "i32": "i", "i64": "q", "f16": "e", "bf16": "H", "f32": "f", "f64": "d"}
CODES = {1: "bool", 2: "u8", 3: "i8", 4: "i32", 5: "i64", 6: "f16", 7: "bf16", 8: "f32", 9: "f64"}
DTYPES = {"bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64,
          "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
TOLERANCES = {"f64": 1e-10, "f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}  # as usual_tolerance() of tests/harness
SAMPLES = 48

# What fails: lines by their op, or by op and a part of the line if other lines of the op pass; cases by op and text.
OTHERS = {
    "add a=f16(2,3) b=f32()": "a tensor of rank 0 counts in promotion, as in the array API standard",
    "index_axes: torch.ops.aten.index(": "a private function",
    "index_axes_put: torch.ops.aten.index_put(": "a private function",
    "avg_pool_grad: torch.ops.aten.avg_pool2d_backward(": "a private function",
    "adaptive_avg_pool_grad: torch.ops.aten._adaptive_avg_pool2d_backward(": "a private function",
    "resize_grad: torch.ops.aten.upsample_": "private functions",
    "rnn: torch._VF.": "private functions",
    "lstm: torch._VF.": "a private function",
    "gru: torch._VF.": "a private function",
}


def excuse(op, torch_line, case):
    """The key of OTHERS for a case, or None."""
    for key in OTHERS:
        name, _, part = key.partition(": ")
        if (part and name == op and part in torch_line) or key == f"{op} {case}":
            return key
    return None


# --- the cases ------------------------------------------------------------------------------------


class Case(NamedTuple):
    text: str
    torch_line: int  # where its block has its `torch` line
    tolerances: dict


def read_file(path):
    """The cases of a file by their line numbers."""
    cases, tolerances, at = {}, {}, 0
    with open(path) as file:
        for number, line in enumerate(file, 1):
            word, _, rest = " ".join(line.split()).partition(" ")
            if word in ("op", "layer"):
                tolerances = dict(TOLERANCES)
            elif word == "torch":
                at = number
            elif word == "tolerance":
                first, second = (rest.split() + [""])[:2]
                tolerances["f32"] = float(first)
                for dtype in ("f16", "bf16"):  # errors grow less there
                    tolerances[dtype] = TOLERANCES[dtype] * max(1, math.sqrt(float(first) / TOLERANCES["f32"]))
                if second[:1].isdigit():  # else the reason begins
                    tolerances["f64"] = float(second)
            elif word == "case":
                cases[number] = Case(rest, at, tolerances)
    return cases


def read_input(stream, info):
    if info["dtype"] is None:
        return None
    dtype = DTYPES[info["dtype"]]
    return gradus._core._from_bytes(stream.read(math.prod(info["dims"]) * dtype.itemsize), dtype, info["dims"])


def read_cases(program, family):
    """Each case of a family in each dtype, with its inputs."""
    with subprocess.Popen([program, "--dump", "--family", family], stdout=subprocess.PIPE) as process:
        while line := process.stdout.readline():
            case = json.loads(line)
            yield case, [read_input(process.stdout, t) for t in case["tensors"]]
    if process.returncode:
        sys.exit(f"{program} --dump --family {family} failed")


# --- evaluating, as tests/golden/make.py does -----------------------------------------------------


def option(value):
    return DTYPES[value["dtype"]] if isinstance(value, dict) else value


def bound(x, value):
    if x.is_floating_point() or (math.isfinite(value) and value != math.trunc(value)):
        return value
    return int(value) if math.isfinite(value) else None


_weights = {}


def weights(k, n):
    """The weights of output k in the loss."""
    if (k, n) not in _weights:
        _weights[k, n] = [((i * 2654435761 + k * 40503 + 12345 & 0xFFFFFFFF) >> 16) / 65536 - 0.5 for i in range(n)]
    return _weights[k, n]


def loss_weights(k, y):
    data = struct.pack(f"<{y.numel()}d", *weights(k, y.numel()))
    return gradus._core._from_bytes(data, torch.float64, y.shape).to(y.dtype)


def evaluate(case, tensors):
    """The results of the torch line, and the gradients of their weighted sum."""
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
        loss = [(y, loss_weights(k, y)) for k, y in enumerate(outs) if y.is_floating_point() and y.requires_grad]
        by = [t for t in tensors if t is not None and t.requires_grad]
        found = [None] * len(by)
        if loss and by:
            found = torch.autograd.grad([y for y, _ in loss], by, [w for _, w in loss], allow_unused=True)
        found = dict(zip(map(id, by), found))
        grads = [found.get(id(t)) for t in tensors]
    outs += [t for t, info in zip(tensors, case["tensors"]) if t is not None and info["mutated"]]
    return outs, grads


# --- the golden files -----------------------------------------------------------------------------


class Stored:
    """A tensor of a golden file: make.py explains the format."""

    def __init__(self, data, at):
        code, rank, self.sampled = data[at], data[at + 1], data[at + 2]
        self.dtype = CODES.get(code)
        at += 4
        self.shape = struct.unpack_from(f"<{rank}I", data, at)
        at += 4 * rank
        self.n = math.prod(self.shape) if self.dtype else 0
        count = SAMPLES if self.sampled else self.n
        letter = LETTERS[self.dtype or "bool"]
        self.values = list(struct.unpack_from(f"<{count}{letter}", data, at))
        at += count * struct.calcsize(letter)
        if self.dtype == "bf16":
            self.values = [struct.unpack("<f", struct.pack("<I", v << 16))[0] for v in self.values]
        if self.sampled:
            floats = self.dtype in TOLERANCES
            self.sum, self.sizes, self.not_finite = struct.unpack_from("<ddI" if floats else "<QdI", data, at)
            at += 20
        self.end = at


def read_golden(family):
    """The answers by key: None if PyTorch does not take the call, else outputs and gradients."""
    with open(os.path.join(GOLDEN, family + ".bin"), "rb") as file:
        data = file.read()
    if data[:8] != b"GDGOLD01":
        sys.exit(f"{family}.bin is no golden file")
    answers, at = {}, 16
    for _ in range(struct.unpack_from("<I", data, 8)[0]):
        key, missing, n_out, n_grad = struct.unpack_from("<QBBB", data, at)
        at += 12
        tensors = []
        for _ in range(n_out + n_grad):
            tensors.append(Stored(data, at))
            at = tensors[-1].end
        answers[key] = None if missing else (tensors[:n_out], tensors[n_out:])
    return answers


# --- comparing, as tests/harness/golden.c does ----------------------------------------------------


class Differs(Exception):
    pass


def elements(t):
    """The elements as a sequence of numbers."""
    floats = t.is_floating_point()
    data = gradus._core._to_bytes(t.detach().to(torch.float64 if floats else torch.int64))
    return array.array("d" if floats else "q", data)


def scale_of(numbers):
    return max(min(max((abs(v) for v in numbers if math.isfinite(v)), default=0), 1), 0.01)


def agree(x, y, tolerance, scale):
    if x == y:
        return True
    if math.isnan(x) or math.isnan(y):
        return math.isnan(x) and math.isnan(y)
    return math.isfinite(x) and math.isfinite(y) and abs(x - y) <= tolerance * (abs(y) + scale)


def compare(t, stored, tolerances):
    if t is None and stored.dtype is None:
        return
    if t is not None and stored.dtype and (NAMES[t.dtype], tuple(t.shape)) != (stored.dtype, stored.shape):
        raise Differs(f"is {NAMES[t.dtype]}{tuple(t.shape)}, PyTorch's is {stored.dtype}{stored.shape}")
    mine = elements(t) if t is not None else [0] * stored.n  # no gradient: zeros
    n = len(mine)
    theirs = stored.values if stored.dtype else [0] * n
    at = [j * (n - 1) // (SAMPLES - 1) for j in range(SAMPLES)] if stored.sampled else range(n)
    floats = stored.dtype is None or stored.dtype in TOLERANCES
    dtype = stored.dtype or NAMES[t.dtype]
    tolerance = tolerances.get(dtype, 0)
    scale = scale_of(theirs) if floats else 0
    for i, y in zip(at, theirs):
        if not (agree(mine[i], y, tolerance, scale) if floats else mine[i] == y):
            raise Differs(f"element {i} is {mine[i]!r}, PyTorch's is {y!r}")
    if stored.sampled and floats:
        finite = [(i, v) for i, v in enumerate(mine) if math.isfinite(v)]
        w = weights(7, n)
        total, sizes = math.fsum(v * w[i] for i, v in finite), math.fsum(abs(v) for _, v in finite)
        near = tolerance * (stored.sizes + scale)
        if n - len(finite) != stored.not_finite or abs(total - stored.sum) > near or abs(sizes - stored.sizes) > near:
            raise Differs(f"sums over all elements are {total!r} and {sizes!r}, PyTorch's {stored.sum!r} and "
                          f"{stored.sizes!r}")
    elif stored.sampled and sum(v * (2 * i + 1) for i, v in enumerate(mine)) % 2**64 != stored.sum:
        raise Differs("some elements differ from PyTorch's, though the samples do not")


def check(case, tensors, answer, tolerances):
    """None, or why the case fails."""
    try:
        outs, grads = evaluate(case, tensors)
        if len(outs) != len(answer[0]):
            raise Differs(f"{len(outs)} outputs, PyTorch has {len(answer[0])}")
        for k, stored in enumerate(answer[0]):
            what = f"output {k}"
            compare(outs[k], stored, tolerances)
        for k, stored in enumerate(answer[1]):
            what = f"gradient of input {k}"
            compare(grads[k] if k < len(grads) else None, stored, tolerances)
    except Differs as difference:
        return f"{what} {difference}" if "outputs" not in str(difference) else str(difference)
    except Exception as failure:
        return f"{type(failure).__name__}: {' '.join(str(failure).split())}"
    return None


# --- all lines ------------------------------------------------------------------------------------


class Line:
    """A `torch` line with the results of its cases."""

    def __init__(self, family, number, case):
        self.where, self.op, self.text = f"{family}.txt:{number}", case["op"], case["torch"]
        self.passed, self.failed, self.others = set(), {}, {}  # numbers of cases; with what failed, or with the excuse

    def add(self, number, text, dtype, why):
        """The result of a case in one dtype."""
        if not why:
            self.passed.add(number)
        elif key := excuse(self.op, self.text, text):
            self.others[number] = key
        else:
            self.failed.setdefault(number, f"line {number} ({dtype}): {why}")

    def good(self):
        return self.passed - set(self.failed) - set(self.others)


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("families", nargs="*", help="default: all files of tests/cases")
    args.add_argument("--tests", default=os.path.join(HERE, "..", "..", "build", "tests", "test_ops"))
    args = args.parse_args()
    logging.disable(logging.WARNING)  # shapes that broadcast
    families = args.families or sorted(f[:-4] for f in os.listdir(CASES) if f.endswith(".txt"))
    lines = {}
    for family in families:
        cases, answers = read_file(os.path.join(CASES, family + ".txt")), read_golden(family)
        for case, tensors in read_cases(args.tests, family):
            answer = answers[int(case["key"], 16)]
            if answer is None or case["torch"] == "None":
                continue  # PyTorch does not take this dtype, or has no such function
            number = int(case["where"].rpartition(":")[2])
            text, torch_line, tolerances = cases[number]
            if (family, torch_line) not in lines:
                lines[family, torch_line] = Line(family, torch_line, case)
            lines[family, torch_line].add(number, text, case["dtype"], check(case, tensors, answer, tolerances))
    report(list(lines.values()), not args.families)


def report(lines, everything):
    for line in lines:
        for key in dict.fromkeys(line.others.values()):
            cases = "" if ": " in key else " " + key.partition(" ")[2]
            print(f"  {line.where} {line.op}{cases}: {OTHERS[key]}")
    failed = [line for line in lines if line.failed]
    for line in failed:
        print(f"FAILED {line.where} {line.op}: {line.text}", *line.failed.values(), sep="\n    ")
    stale = set(OTHERS) - {key for line in lines for key in line.others.values()} if everything else set()
    for key in stale:
        print(f"FAILED {key}: nothing of this fails, so it is no longer one of the others")
    good = [line for line in lines if not line.failed and not line.others]
    cases = sum(len(line.passed | set(line.failed) | set(line.others)) for line in lines)
    good_cases = sum(len(line.good()) for line in lines)
    print(f"{len(good)} of {len(lines)} lines as they stand, {good_cases} of {cases} cases")
    wrong, skipped = len(failed) + len(stale), len(lines) - len(good) - len(failed)
    print(f"{len(good)} passed, {wrong} failed, {skipped} skipped")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
