#!/usr/bin/env python3
"""Writes autocast.txt: the dtypes that PyTorch's autocast gives the results of each op.

    python tests/golden/autocast_make.py [--tests build/tests/test_ops]

Needs a Python with torch, and the built test program, which provides the cases (see make.py). The cases of
an op run under torch.autocast with bfloat16, with float inputs of f32 and of bf16: for CUDA on fake
tensors, which have a dtype but no data and need no CUDA device, and for the CPU. A line is

    op input : results on CUDA : results on the CPU

where results are dtypes, one for each float output ("-": the CPU does not support the call). Ops that fake
tensors cannot run are omitted. Our lists follow CUDA's: those of the CPU keep norms, exponentials and sums in
bf16. EXCEPTIONS lists where we differ from CUDA and why; the test checks that those do differ.
"""
import argparse, json, os, subprocess, sys, warnings

warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from make import NAMES, TORCH, evaluate, read_tensor  # noqa: E402
import torch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

EXCEPTIONS = {
    ("instance_norm", "bf16"): "as the other norms",
    ("mean", "bf16"): "as sum",
    ("var", "bf16"): "a sum of squares",
    ("std", "bf16"): "a sum of squares",
    ("exp2", "bf16"): "as exp",
}


def fake_tensors(tensors):
    return [None if t is None else torch.empty(t.shape, dtype=t.dtype, device="cuda") for t in tensors]


def result_dtypes(case, tensors):
    case = dict(case, grad=False)
    outs, _ = evaluate(case, tensors)
    written = sum(t is not None and info["mutated"] for t, info in zip(tensors, case["tensors"]))
    outs = outs[: len(outs) - written]
    return " ".join(NAMES[o.dtype] for o in outs if o.is_floating_point()) or "-"


def autocast_dtypes(device, case, tensors):
    """The dtypes of the float results under autocast; "-" if the call is not supported."""
    try:
        if device == "cpu":
            with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
                return result_dtypes(case, tensors)
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        with torch.no_grad(), FakeTensorMode():
            return result_dtypes(case, fake_tensors(tensors))
    except Exception:
        return "-"
    finally:
        torch.set_autocast_enabled("cuda", False)


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--tests", default=os.path.join(HERE, "..", "..", "build", "tests", "test_ops"))
    args = args.parse_args()
    found = {}
    families = sorted(f[:-4] for f in os.listdir(os.path.join(HERE, "..", "cases")) if f.endswith(".txt"))
    for family in families:
        process = subprocess.Popen([args.tests, "--dump", "--family", family], stdout=subprocess.PIPE)
        while line := process.stdout.readline():
            case = json.loads(line)
            tensors = [read_tensor(process.stdout, t) for t in case["tensors"]]
            if case["internal"] or case["dtype"] != "f32" or any(t is not None and t.dtype == torch.float64 for t in tensors):
                continue
            if "dtype" in case["options"] and case["options"]["dtype"] is not None:
                continue  # the call sets its dtype itself
            for dtype in ("f32", "bf16"):
                row = found.setdefault((case["op"], dtype), ["-", "-"])
                given = [t.to(TORCH[dtype]) if t is not None and t.is_floating_point() else t for t in tensors]
                for i, device in enumerate(("cuda", "cpu")):
                    if row[i] == "-":
                        row[i] = autocast_dtypes(device, case, given)
        if process.wait() != 0:
            return 1
    with open(os.path.join(HERE, "autocast.txt"), "w") as f:
        f.write(f"# Written by autocast_make.py with PyTorch {torch.__version__.split('+')[0]}.\n")
        for (op, dtype), (cuda, cpu) in sorted(found.items()):
            if cuda == "-":
                continue
            reason = EXCEPTIONS.get((op, dtype))
            f.write(f"{op} {dtype} : {cuda} : {cpu}{' : ' + reason if reason else ''}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
