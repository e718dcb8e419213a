#!/usr/bin/env python3
"""Writes the golden files of layers: results of PyTorch's modules for the same inputs and weights.

    python tests/golden/nn_make.py [--tests build/tests/test_layers] [FAMILY ...]

Works like make.py for ops, with the same file format: `test_layers --dump` prints the cases of tests/cases/nn, their
options, and the values of inputs, parameters and buffers. The torch line creates a module (it may use the inputs for
their shapes). The module gets these values by name and is called with the inputs in order, or by the call line, where
`m` is the module.

Each case has three entries for each dtype:
    state   one output of u8: the text "parameter weight f32 4,3\nbuffer running_mean f32 4\n", in PyTorch's order
    train   in train mode: the outputs, then the buffers afterwards; gradients of the inputs, then of the parameters
    eval    the same in eval mode
Cases marked `random` have no train entry.
"""
import argparse, copy, json, math, os, struct, subprocess, sys

import torch
import torch.nn.functional as F

from make import CODES, NAMES, TORCH, option, pack, read_tensor, weights

HERE = os.path.dirname(os.path.abspath(__file__))


def module_of(case, names):
    """Creates PyTorch's module with the values of the case."""
    m = eval(case["torch"], names).to(TORCH[case["dtype"]])
    mine, theirs = {s["name"]: s for s in case["state"]}, m.state_dict()
    wrong = [f"{n} {tuple(t.shape)}" for n, t in theirs.items() if n not in mine or tuple(mine[n]["dims"]) != tuple(t.shape)]
    wrong += [f"no {n}" for n in mine if n not in theirs]
    if wrong:
        raise ValueError(f"PyTorch has {', '.join(wrong)}; the layer has {', '.join(n + str(tuple(s['dims'])) for n, s in mine.items())}")
    m.load_state_dict({n: mine[n]["value"] for n in theirs})
    return m


def describe(m):
    lines = []
    for kind, items in (("parameter", m.named_parameters()), ("buffer", m.named_buffers())):
        for name, t in items:
            lines.append(f"{kind} {name} {NAMES[t.dtype]} {','.join(map(str, t.shape))}\n")
    return "".join(lines).encode()


def evaluate(m, case, names, tensors, train):
    m = copy.deepcopy(m).train(train)
    tensors = [None if t is None else t.clone() for t in tensors]
    for t in tensors:
        if case["grad"] and t is not None and t.is_floating_point():
            t.requires_grad_(True)
    names = dict(names, m=m)
    for param in case["names"]:
        mine = [t for t, info in zip(tensors, case["tensors"]) if info["name"] == param["name"]]
        names[param["name"]] = mine if param["list"] else mine[0]
    given = list(tensors)
    while given and given[-1] is None:
        given.pop()
    result = eval(case["call"], names) if case["call"] else m(*given)
    outs = list(result) if isinstance(result, (tuple, list)) else [result]
    grads = []
    if case["grad"]:
        by = tensors + list(m.parameters())
        loss = [(o, torch.from_numpy(weights(k, o.numel())).reshape(o.shape).to(o.dtype))
                for k, o in enumerate(outs) if o.is_floating_point() and o.requires_grad]
        used = [t for t in by if t is not None and t.requires_grad]
        found = torch.autograd.grad([o for o, _ in loss], used, [w for _, w in loss], allow_unused=True) if loss and used else []
        found = dict(zip(map(id, used), found))
        grads = [found.get(id(t)) for t in by]
    outs += [b.clone() for b in m.buffers()]
    return struct.pack("<BBBB", 0, len(outs), len(grads), 0) + b"".join(map(pack, outs + grads))


def entries_of(case, stream):
    tensors = [read_tensor(stream, t) for t in case["tensors"]]
    for s in case["state"]:
        s["value"] = read_tensor(stream, s)
    names = {"torch": torch, "F": F, "math": math, "inf": math.inf, "nan": math.nan, "nn": torch.nn}
    names.update({name: option(value) for name, value in case["options"].items()})
    m = module_of(case, {**names, **{info["name"]: t for t, info in zip(tensors, case["tensors"])}})
    text = describe(m)
    packed = struct.pack("<BBBBI", CODES["u8"], 1, 0, 0, len(text)) + text
    yield "state", struct.pack("<BBBB", 0, 1, 0, 0) + packed
    yield "eval", evaluate(m, case, names, tensors, False)
    if not case["random"]:
        yield "train", evaluate(m, case, names, tensors, True)


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("families", nargs="*", help="default: all files of tests/cases/nn")
    args.add_argument("--tests", default=os.path.join(HERE, "..", "..", "build", "tests", "test_layers"))
    args = args.parse_args()
    torch.set_num_threads(1)
    folder = os.path.join(HERE, "..", "cases", "nn")
    wrong = 0
    for family in args.families or sorted(f[:-4] for f in os.listdir(folder) if f.endswith(".txt")):
        process = subprocess.Popen([args.tests, "--dump", "--family", family], stdout=subprocess.PIPE)
        entries = []
        while line := process.stdout.readline():
            case = json.loads(line)
            try:
                for what, body in entries_of(case, process.stdout):
                    entries.append(struct.pack("<Q", int(case["keys"][what], 16)) + body)
            except Exception as error:
                print(f"{case['where']}: {case['layer']} ({case['dtype']}): {error}", file=sys.stderr)
                wrong += 1
        wrong += process.wait() != 0
        data = b"GDGOLD01" + struct.pack("<II", len(entries), 0) + b"".join(entries)
        os.makedirs(os.path.join(HERE, "nn"), exist_ok=True)
        with open(os.path.join(HERE, "nn", family + ".bin"), "wb") as f:
            f.write(data)
        print(f"{family}: {len(entries)} entries, {len(data)} bytes")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
