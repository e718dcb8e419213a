"""onnx_check.py FOLDER - files that were saved here, in the eyes of others.

    mkdir /tmp/files
    GRADUS_ONNX_DIR=/tmp/files build/tests/test_ops --suite onnx
    python tests/golden/onnx_check.py /tmp/files

Needs a Python with onnx, onnxruntime and numpy; the tests do not need it. Each .onnx goes through
onnx.checker, shapes and types included, and through ONNX Runtime; the results are compared with those in
the .npz beside it. Files with nodes of the domain "gradus" are only parsed: others cannot run them.
"""

import collections
import glob
import os
import sys

import numpy as np
import onnx
import onnxruntime

# what ONNX Runtime has no kernel for, or does in another way
NOT_IMPLEMENTED = ("NOT_IMPLEMENTED", "NotImplemented", "Could not find an implementation")


def close(actual, expected):
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype}{actual.shape}, expected {expected.dtype}{expected.shape}"
    if actual.size == 0 or np.array_equal(actual, expected, equal_nan=expected.dtype.kind == "f"):
        return ""
    if expected.dtype.kind != "f":
        return "differs"
    scale = np.max(np.abs(expected[np.isfinite(expected)]), initial=0)
    tolerance = 2e-4 if expected.dtype == np.float32 else 1e-6
    if np.allclose(actual, expected, rtol=tolerance, atol=tolerance * max(scale, 1e-2), equal_nan=True):
        return ""
    return f"differs by {np.nanmax(np.abs(actual - expected))}"


def unusual(a):
    """Where ONNX does not say what comes out: NaN, infinities, the largest integers, no elements."""
    if a.size == 0 or (a.dtype.kind == "f" and not np.isfinite(a).all()):
        return True
    return a.dtype.kind == "i" and bool((np.abs(a.astype(np.float64)) > 1e15).any())


def check(path):
    """What is wrong with a file; "" if nothing is. And whether it was run."""
    model = onnx.load(path)
    if any(node.domain == "gradus" for node in model.graph.node):
        return "", "own"
    onnx.checker.check_model(model, full_check=True)
    data = np.load(path[:-5] + ".npz")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as e:  # noqa: BLE001
        if any(text in str(e) for text in NOT_IMPLEMENTED):
            return "", "not implemented"
        return str(e), "failed"
    feeds = {value.name: data[f"i{i}"] for i, value in enumerate(session.get_inputs())}
    results = session.run(None, feeds)
    for i, value in enumerate(results):
        why = close(np.asarray(value), data[f"o{i}"])
        if why and any(unusual(feed) for feed in feeds.values()):
            return "", "run with other results for NaN, infinity or nothing"
        if why:
            return f"output {i} {why}", "failed"
    return "", "run"


def main():
    counts = collections.Counter()
    bad = collections.Counter()
    for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.onnx"))):
        if not os.path.exists(path[:-5] + ".npz"):
            continue
        try:
            why, how = check(path)
        except Exception as e:  # noqa: BLE001
            why, how = f"{type(e).__name__}: {e}", "failed"
        if why:
            print(f"{os.path.basename(path)}: {why.splitlines()[0][:300]}")
            bad[os.path.basename(path)] += 1
            how = "failed"
        counts[how] += 1
    print(", ".join(f"{n} {how}" for how, n in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
