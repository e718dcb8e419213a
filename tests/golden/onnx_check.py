"""onnx_check.py FOLDER [PART] - checks saved ONNX files with the onnx package and ONNX Runtime.

    mkdir /tmp/files
    GRADUS_ONNX_DIR=/tmp/files build/tests/test_ops --suite onnx
    GRADUS_ONNX_DIR=/tmp/files build/tests/test_onnx_control
    GRADUS_ONNX_DIR=/tmp/files build/tests/test_onnx_others
    GRADUS_ONNX_DIR=/tmp/files build/examples/graph_cond_onnx
    python tests/golden/onnx_check.py /tmp/files

Needs a Python with onnx, onnxruntime and numpy; the tests do not need it. Each .onnx file whose name contains
PART is checked by onnx.checker, including shapes and types, and run by ONNX Runtime; the results are
compared with those in the .npz file beside it. Files with nodes of the domain "gradus" are only parsed:
other programs cannot run them. Failures are listed by reason. Each file has its own process, because ONNX
Runtime may end it.
"""

import collections
import glob
import os
import pickle
import re
import sys

import numpy as np
import onnx
import onnxruntime

# messages about missing kernels in ONNX Runtime
NOT_IMPLEMENTED = (
    "NOT_IMPLEMENTED",
    "NotImplemented",
    "Could not find an implementation",
    "operator only supports",
    "No corresponding Numpy type",
    "does not support",
    "not supported for AutoPadType",
)


def difference(actual, expected):
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"gives {actual.dtype}{actual.shape}, expected {expected.dtype}{expected.shape}"
    if actual.size == 0 or np.array_equal(actual, expected, equal_nan=expected.dtype.kind == "f"):
        return ""
    if expected.dtype.kind != "f":
        return "gives other numbers"
    scale = np.max(np.abs(expected[np.isfinite(expected)]), initial=0)
    tolerance = {np.dtype(np.float16): 4e-3, np.dtype(np.float32): 2e-4}.get(expected.dtype, 1e-6)
    if np.allclose(actual, expected, rtol=tolerance, atol=tolerance * max(scale, 1e-2), equal_nan=True):
        return ""
    with np.errstate(invalid="ignore"):
        return f"is off by {np.max(np.abs(actual - expected)):.2g}"


def is_unusual(a):
    """Inputs with undefined results in ONNX: NaN, infinities, the largest integers, no elements."""
    if a.size == 0 or (a.dtype.kind == "f" and not np.isfinite(a).all()):
        return True
    return a.dtype.kind == "i" and bool((np.abs(a.astype(np.float64)) > 1e15).any())


def nodes_of(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes_of(attribute.g)


def run_file(path):
    """Returns the outcome for the file and its reason."""
    model = onnx.load(path)
    if any(node.domain == "gradus" for node in nodes_of(model.graph)):
        return "own", ""
    if any(value.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16
           for value in list(model.graph.input) + list(model.graph.output)):
        return "not implemented", "bfloat16"
    onnx.checker.check_model(model, full_check=True)
    data = np.load(path[:-5] + ".npz")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = {value.name: data[f"i{i}"] for i, value in enumerate(session.get_inputs())}
    try:
        results = session.run(None, feeds)
    except Exception as e:  # noqa: BLE001
        if any(is_unusual(feed) for feed in feeds.values()):
            return "failed for NaN, infinity or no elements", str(e)
        raise
    for i, value in enumerate(results):
        why = difference(np.asarray(value), data[f"o{i}"])
        if why and any(is_unusual(feed) for feed in feeds.values()):
            return "other results for NaN, infinity or no elements", why
        if why:
            return "failed", f"output {i} {why}"
    return "run", ""


def check_file(path):
    """Runs the file in its own process."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        try:
            answer = run_file(path)
        except Exception as e:  # noqa: BLE001
            text = f"{type(e).__name__}: {e}"
            answer = ("not implemented" if any(n in text for n in NOT_IMPLEMENTED) else "failed", text)
        with os.fdopen(write_end, "wb") as out:
            pickle.dump(answer, out)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as into:
        answer = into.read()
    os.waitpid(child, 0)
    return pickle.loads(answer) if answer else ("failed", "ONNX Runtime ended the process")


def reason_group(why):
    """The reason without numbers, names and paths, so that similar failures are grouped."""
    why = why.splitlines()[0]
    why = re.sub(r".*Status Message: ", "", why)
    why = re.sub(r"/\S*/|'[^']*'|\([^()]*node name[^()]*\)|[-0-9.e]*\d[-0-9.e]*", "_", why)
    return why[:160]


def main():
    counts = collections.Counter()
    failed = collections.defaultdict(list)
    part = sys.argv[2] if len(sys.argv) > 2 else ""
    for path in sorted(glob.glob(os.path.join(sys.argv[1], f"*{part}*.onnx"))):
        if not os.path.exists(path[:-5] + ".npz"):
            continue
        how, why = check_file(path)
        counts[how] += 1
        if how == "failed":
            failed[reason_group(why)].append(os.path.basename(path)[:-5])
    for why, names in sorted(failed.items(), key=lambda item: -len(item[1])):
        print(f"{len(names)} x {why}\n    {' '.join(names[:8])}{' ...' if len(names) > 8 else ''}")
    print(", ".join(f"{n} {how}" for how, n in counts.most_common()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
