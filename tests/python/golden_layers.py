#!/usr/bin/env python3
"""Runs the `torch` lines of tests/cases/nn with gradus.torch in PyTorch's place.

    PYTHONPATH=build/python python3 tests/python/golden_layers.py [--tests build/tests/test_layers] [FAMILY ...]

Each line makes a module, as tests/golden/nn_make.py did under PyTorch. It gets the weights of the case, which
`test_layers --dump` prints, by load_state_dict, and is called in both modes. Names and shapes of the state, outputs, buffers
afterwards and gradients are compared with the golden files. OTHERS has the lines that cannot pass, and why.
"""
import argparse
import copy
import json
import logging
import math
import os
import subprocess
import sys

import gradus.torch as torch
import gradus.torch.nn.functional as F
from golden import CASES, DTYPES, HERE, NAMES, Differs, compare, loss_weights, option, read_file, read_golden, read_input

OTHERS = {"pack_padded_sequence": "packed sequences are not there; LSTM, GRU and RNN take lengths="}  # by a part of the call


def module_of(case, names):
    m = eval(case["torch"], names).to(DTYPES[case["dtype"]])
    m.load_state_dict({s["name"]: s["value"] for s in case["state"]})
    return m


def describe(m):
    rows = [(kind, name, t) for kind, items in (("parameter", m.named_parameters()), ("buffer", m.named_buffers()))
            for name, t in items]
    return "".join(f"{kind} {name} {NAMES[t.dtype]} {','.join(map(str, t.shape))}\n" for kind, name, t in rows)


def evaluate(m, case, names, tensors, train):
    """Outputs and buffers, and gradients of inputs and parameters."""
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
        loss = [(o, loss_weights(k, o)) for k, o in enumerate(outs) if o.is_floating_point() and o.requires_grad]
        used = [t for t in by if t is not None and t.requires_grad]
        found = torch.autograd.grad([o for o, _ in loss], used, [w for _, w in loss],
                                    allow_unused=True) if loss and used else []
        found = dict(zip(map(id, used), found))
        grads = [found.get(id(t)) for t in by]
    return outs + list(m.buffers()), grads


def check(case, tensors, answers, tolerances):
    """None, or why the case fails."""
    what = "state"
    try:
        names = {"torch": torch, "F": F, "math": math, "inf": math.inf, "nan": math.nan, "nn": torch.nn}
        names.update({name: option(value) for name, value in case["options"].items()})
        m = module_of(case, {**names, **{info["name"]: t for t, info in zip(tensors, case["tensors"])}})
        wanted = bytes(answers[int(case["keys"]["state"], 16)][0][0].values).decode()
        if describe(m) != wanted:
            raise Differs(f"is {describe(m)!r}, PyTorch's is {wanted!r}")
        for mode in ("eval", "train"):
            answer = answers.get(int(case["keys"][mode], 16)) if mode in case["keys"] else None
            if answer is None:
                continue
            outs, grads = evaluate(m, case, names, tensors, mode == "train")
            for kind, mine, theirs in (("output", outs, answer[0]), ("gradient", grads, answer[1])):
                if len(mine) != len(theirs):
                    raise Differs(f"{mode}: {len(mine)} {kind}s, PyTorch has {len(theirs)}")
                for k, stored in enumerate(theirs):
                    what = f"{mode}: {kind} {k}"
                    compare(mine[k], stored, tolerances)
    except Differs as difference:
        return f"{what} {difference}"
    except Exception as failure:
        return f"{what}: {type(failure).__name__}: {' '.join(str(failure).split())}"
    return None


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("families", nargs="*", help="default: all files of tests/cases/nn")
    args.add_argument("--tests", default=os.path.join(HERE, "..", "..", "build", "tests", "test_layers"))
    args = args.parse_args()
    logging.disable(logging.WARNING)
    folder = os.path.join(CASES, "nn")
    passed, failed, others, cases = set(), {}, {}, 0
    for family in args.families or sorted(f[:-4] for f in os.listdir(folder) if f.endswith(".txt")):
        answers = read_golden(os.path.join("nn", family))
        lines = read_file(os.path.join(folder, family + ".txt"))
        with subprocess.Popen([args.tests, "--dump", "--family", family], stdout=subprocess.PIPE) as process:
            while line := process.stdout.readline():
                case = json.loads(line)
                tensors = [read_input(process.stdout, t) for t in case["tensors"]]
                for s in case["state"]:
                    s["value"] = read_input(process.stdout, s)
                if int(case["keys"]["state"], 16) not in answers:
                    continue  # PyTorch has no such module, or does not take this dtype
                number = int(case["where"].rpartition(":")[2])
                _, torch_line, tolerances = lines[number]
                where, cases = (family, torch_line, case["torch"]), cases + 1
                why = check(case, tensors, answers, tolerances)
                key = next((k for k in OTHERS if k in f"{case['torch']} {case['call']}"), None)
                if why and key:
                    others[where] = key
                elif why or key:
                    why = why or "passes, so it is no longer one of the others"
                    failed.setdefault(where, []).append(f"line {number} ({case['dtype']}): {why}")
                else:
                    passed.add(where)
    for where, key in others.items():
        print(f"  nn/{where[0]}.txt:{where[1]}: {OTHERS[key]}")
    for where, whys in failed.items():
        print(f"FAILED nn/{where[0]}.txt:{where[1]}: {where[2]}", *whys, sep="\n    ")
    good = passed - set(failed) - set(others)
    print(f"{len(good)} of {len(passed | set(failed) | set(others))} lines as they stand, {cases} cases")
    print(f"{len(good)} passed, {len(failed)} failed, {len(others)} skipped")
    sys.exit(1 if failed or not good else 0)


if __name__ == "__main__":
    main()
