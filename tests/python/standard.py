"""Compares gradus with array_api_strict, an implementation of the Python Array API standard that follows it to the letter:
the names, the arguments, and random results of every function. Needs array_api_strict."""
import inspect
import random
import warnings

import array_api_strict as strict
import numpy as np

import gradus as gd
from gradus import _missing

warnings.simplefilter("ignore")
random.seed(7)
rng = np.random.default_rng(7)

NOT_FUNCTIONS = {"Device", "ArrayAPIStrictFlags", "set_array_api_strict_flags", "get_array_api_strict_flags",
                 "reset_array_api_strict_flags"}
FLOATS, INTS = ["float32", "float64"], ["int8", "int32", "int64", "uint8"]
passed, failures = 0, []


def functions_of(module):
    return sorted(n for n in module.__all__ if inspect.isfunction(getattr(module, n)) and n not in NOT_FUNCTIONS)


def check(good, what):
    global passed
    if good:
        passed += 1
    else:
        failures.append(what)
        print("FAILED", what)


# --- names and arguments --------------------------------------------------------------------------


def check_names(ours, theirs, names):
    """The list of the standard's names is complete, and what is not there says so by name."""
    check(sorted(names) == functions_of(theirs), f"the names differ: {set(names) ^ set(functions_of(theirs))}")
    for name in names:
        try:
            getattr(ours, name)
            check(True, name)
        except AttributeError as error:
            check(name in str(error) and "yet" in str(error), f"{name}: {error}")


def check_arguments(ours, theirs):
    for name in functions_of(theirs):
        if not hasattr(ours, name):
            continue
        mine = inspect.signature(getattr(ours, name)).parameters
        others = any(p.kind is p.VAR_KEYWORD for p in mine.values())
        for p in inspect.signature(getattr(theirs, name)).parameters.values():
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
                known = {"dims": "shape"}
                names = {known.get(n, n) for n in mine}
                check(others or p.name in names, f"{name}() has no argument {p.name}: {list(mine)}")


# --- random results -------------------------------------------------------------------------------


def sample(dtype, shape, low=None, high=None):
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in INTS:
        low = (0 if dtype == "uint8" else -20) if low is None else int(low)
        return rng.integers(low, 20 if high is None else int(high), shape).astype(dtype)
    return rng.uniform(-3 if low is None else low, 3 if high is None else high, shape).astype(dtype)


def both(a):
    return gd.asarray(a, copy=True), strict.asarray(a, copy=True)


def as_numpy(x):
    return np.asarray(x._array) if hasattr(x, "_array") else x.numpy() if isinstance(x, gd.Tensor) else np.asarray(x)


def same(mine, theirs, what):
    if isinstance(theirs, (tuple, list)):
        if len(mine) != len(theirs):
            return check(False, f"{what}: {len(mine)} results, expected {len(theirs)}")
        for i, (m, t) in enumerate(zip(mine, theirs)):
            same(m, t, f"{what}[{i}]")
        return None
    m, t = as_numpy(mine), as_numpy(theirs)
    if t.dtype == np.uint64 and m.dtype == np.int64:
        t = t.astype(np.int64)  # sums of uint8, as there is no uint64
    if m.dtype != t.dtype or m.shape != t.shape:
        return check(False, f"{what}: {m.dtype}{m.shape}, expected {t.dtype}{t.shape}")
    close = np.allclose(m, t, rtol=2e-5 if m.dtype == np.float32 else 1e-12, atol=1e-6, equal_nan=True) if (
        m.dtype.kind == "f") else np.array_equal(m, t)
    return check(close, f"{what}: {m} expected {t}")


def run(name, *args, module=None, **names):
    """Calls a function of both with arrays for the NumPy arrays among the arguments."""
    mine, theirs = (getattr(m.linalg if module else m, name) for m in (gd, strict))

    def convert(x, side):
        if isinstance(x, np.ndarray):
            return both(x)[side]
        if isinstance(x, list) and x and isinstance(x[0], np.ndarray):
            return [convert(v, side) for v in x]
        return x

    what = f"{name}({', '.join(f'{a.dtype}{a.shape}' if isinstance(a, np.ndarray) else repr(a) for a in args)}, {names})"
    try:
        expected = theirs(*(convert(a, 1) for a in args), **names)
    except Exception as error:  # not in the standard's domain
        return print("  left out:", what, error)
    try:
        got = mine(*(convert(a, 0) for a in args), **names)
    except Exception as error:
        return check(False, f"{what}: {type(error).__name__}: {error}")
    return same(got, expected, what)


def shapes():
    return [(), (1,), (7,), (3, 4), (2, 1, 5), (0,), (0, 3)]


UNARY = {  # name: domain of floats
    "abs": None, "acos": (-1, 1), "acosh": (1, 9), "asin": (-1, 1), "asinh": None, "atan": None, "atanh": (-0.9, 0.9),
    "ceil": None, "cos": None, "cosh": None, "exp": None, "expm1": None, "floor": None, "isfinite": None, "isinf": None,
    "isnan": None, "log": (0.1, 9), "log10": (0.1, 9), "log1p": (-0.9, 9), "log2": (0.1, 9), "negative": None,
    "positive": None, "reciprocal": (0.2, 3), "round": None, "sign": None, "sin": None, "sinh": None, "square": None,
    "sqrt": (0, 9), "tan": (-1, 1), "tanh": None, "trunc": None}
KEEP_INTS = ("abs", "ceil", "floor", "isfinite", "isinf", "isnan", "negative", "positive", "round", "sign", "square",
             "trunc")
BINARY = ("add", "atan2", "divide", "equal", "floor_divide", "greater", "greater_equal", "less", "less_equal", "logaddexp",
          "maximum", "minimum", "multiply", "not_equal", "pow", "remainder", "subtract")
FLOAT_ONLY = ("atan2", "divide", "logaddexp")


def check_elementwise():
    for name, domain in UNARY.items():
        for dtype in FLOATS + (INTS if name in KEEP_INTS else []):
            for shape in shapes():
                run(name, sample(dtype, shape, *(domain if domain and dtype in FLOATS else (None, None))))
    for name in BINARY:
        for a in FLOATS + ([] if name in FLOAT_ONLY else INTS):
            for b in (FLOATS if a in FLOATS else INTS):
                if {a, b} == {"int8", "uint8"}:
                    continue  # int16, a dtype that is not there
                for s, t in (((3, 4), (3, 4)), ((3, 1), (4,)), ((), (5,)), ((5,), ()), ((), ()), ((0, 2), (2,))):
                    low = 1 if name in ("floor_divide", "remainder", "divide") else 0 if name == "pow" else None
                    high = 4 if name == "pow" else None
                    base = 0.1 if name == "pow" and a in FLOATS else None
                    run(name, sample(a, s, base, high), sample(b, t, low, high))
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        for dtype in INTS + ["bool"]:
            run(name, sample(dtype, (3, 4)), sample(dtype, (4,)))
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        for dtype in INTS:
            run(name, sample(dtype, (3, 4)), sample(dtype, (4,), 0, 6))
    for dtype in INTS + ["bool"]:
        run("bitwise_invert", sample(dtype, (3, 4)))
    for name in ("logical_and", "logical_or", "logical_xor"):
        run(name, sample("bool", (3, 4)), sample("bool", (4,)))
    run("logical_not", sample("bool", (3, 4)))
    for dtype in FLOATS + INTS:
        x = sample(dtype, (3, 4))
        run("clip", x, 1, 2)
        run("clip", x, min=1)
        run("clip", x, max=2)
        run("clip", x, sample(dtype, (4,), 0, 1), sample(dtype, (3, 1), 1, 2))


def check_reductions():
    for name in ("sum", "prod", "max", "min", "mean", "std", "var", "all", "any", "argmax", "argmin", "count_nonzero"):
        for dtype in FLOATS + ([] if name in ("mean", "std", "var") else INTS):
            for axis in (None, 0, -1) + ((1, (0, 1)) if "arg" not in name else (1,)):
                for keepdims in (False, True):
                    run(name, sample(dtype, (3, 4, 2)), axis=axis, keepdims=keepdims)
            run(name, sample(dtype, ()))
    for dtype in FLOATS:
        run("std", sample(dtype, (3, 4)), axis=1, correction=1)
        run("var", sample(dtype, (3, 4)), axis=0, correction=0.5)
    for name in ("cumulative_sum", "cumulative_prod"):
        for dtype in FLOATS + INTS:
            run(name, sample(dtype, (5,)))
            run(name, sample(dtype, (3, 4)), axis=1, include_initial=True)
    for dtype in FLOATS + INTS:
        run("diff", sample(dtype, (3, 5)), axis=-1)
        run("diff", sample(dtype, (3, 5)), axis=0, n=2)


def check_shapes():
    x = sample("float32", (2, 3, 4))
    run("concat", [sample("float32", (2, 3)), sample("float64", (1, 3))], axis=0)
    run("concat", [sample("int32", (2, 3)), sample("int32", (2, 1))], axis=-1)
    run("concat", [sample("int32", (2, 3)), sample("int32", (4,))], axis=None)
    run("stack", [x, x], axis=-1)
    run("stack", [sample("int32", (3,)), sample("int64", (3,))])
    for axis in (0, -1, (0, 2)):
        run("expand_dims", x, axis=axis)
    run("flip", x)
    run("flip", x, axis=(0, -1))
    run("flip", x, axis=1)
    run("moveaxis", x, 0, -1)
    run("moveaxis", x, (0, 1), (1, 2))
    run("permute_dims", x, (2, 0, 1))
    run("matrix_transpose", x)
    run("repeat", x, 2)
    run("repeat", x, 3, axis=-1)
    for shape in ((4, 6), (-1,), (2, -1), (24,), (1, 2, 3, 4)):
        run("reshape", x, shape)
    run("reshape", sample("int64", (0, 3)), (3, 0))
    for shift, axis in ((1, 0), (-2, None), ((1, 2), (0, -1)), (5, 1)):
        run("roll", x, shift, axis=axis)
    run("squeeze", sample("float32", (1, 3, 1)), (0, 2))
    run("squeeze", sample("float32", (1, 3, 1)), 0)
    run("tile", x, (2, 1))
    run("tile", x, (2, 1, 1, 3))
    run("unstack", x, axis=1)
    run("broadcast_to", sample("int32", (3, 1)), (2, 3, 4))
    run("tril", sample("float32", (3, 4)), k=1)
    run("triu", sample("int32", (2, 3, 4)), k=-1)
    for name in ("zeros_like", "ones_like", "empty_like"):
        if name != "empty_like":
            run(name, x)
            run(name, x, dtype=None)
    run("full_like", x, 3)
    same(gd.broadcast_arrays(*(both(a)[0] for a in (x, x[0]))),
         strict.broadcast_arrays(*(both(a)[1] for a in (x, x[0]))), "broadcast_arrays")


def check_creation():
    for args in ((5,), (2, 9), (2, 9, 3), (9, 2, -2), (0.5, 3.0), (0, 1, 0.25), (3, 3), (5, 1)):
        same(gd.arange(*args), strict.astype(strict.arange(*args), strict.float32)
             if any(isinstance(a, float) for a in args) else strict.arange(*args), f"arange{args}")
    for k in (-1, 0, 2):
        same(gd.eye(3, 4, k=k, dtype=gd.float64), strict.eye(3, 4, k=k), f"eye k={k}")
    for n in (1, 2, 5):
        for endpoint in (True, False):
            same(gd.linspace(-1, 2, n, dtype="float64", endpoint=endpoint), strict.linspace(-1, 2, n, endpoint=endpoint),
                 f"linspace {n} {endpoint}")
    for name in ("zeros", "ones"):
        for dtype in FLOATS + INTS + ["bool"]:
            same(getattr(gd, name)((2, 3), dtype=dtype), getattr(strict, name)((2, 3), dtype=getattr(strict, dtype)),
                 f"{name} {dtype}")
    check(gd.empty(2, 3).shape == gd.empty((2, 3)).shape == (2, 3), "empty of several sizes")
    same(gd.full((2, 2), 7), strict.full((2, 2), 7), "full of an int")
    same(gd.full((2, 2), True), strict.full((2, 2), True), "full of a bool")
    for indexing in ("xy", "ij"):
        for sizes in ((2, 3), (2, 3, 4), (3,)):
            arrays = [sample("float32", (n,)) for n in sizes]
            same(gd.meshgrid(*(both(a)[0] for a in arrays), indexing=indexing),
                 strict.meshgrid(*(both(a)[1] for a in arrays), indexing=indexing), f"meshgrid {sizes} {indexing}")


def check_searching():
    for dtype in FLOATS + INTS:
        x = rng.permutation(24).astype(dtype).reshape(4, 6)
        for axis in (0, -1):
            for descending in (False, True):
                run("sort", x, axis=axis, descending=descending)
                run("argsort", x, axis=axis, descending=descending)
        run("nonzero", sample(dtype, (3, 4)))
        run("where", sample("bool", (3, 4)), x[:3, :4], x[:3, :4])
    x = sample("float32", (3, 4))
    run("take", x, np.asarray([0, 2, 2]), axis=1)
    run("take_along_axis", x, np.asarray([[0, 1], [2, 0], [3, 3]]), axis=1)
    run("isin", sample("int32", (3, 4)), sample("int32", (5,)))
    a, b = sample("int32", (3, 4)), sample("int32", (5,))  # array_api_strict 2.6.1 ignores invert
    same(gd.isin(both(a)[0], both(b)[0], invert=True), np.isin(a, b, invert=True), "isin inverted")


def check_linalg():
    for dtype in FLOATS:
        a, b = sample(dtype, (3, 4)), sample(dtype, (4, 5))
        run("matmul", a, b)
        run("matmul", sample(dtype, (2, 3, 4)), b)
        run("matmul", a, sample(dtype, (4,)))
        run("tensordot", a, b, axes=1)
        run("tensordot", sample(dtype, (3, 4, 5)), sample(dtype, (5, 4)), axes=((1, 2), (1, 0)))
        run("tensordot", a, b, axes=0)
        run("vecdot", a, sample(dtype, (3, 4)))
        run("cross", sample(dtype, (4, 3)), sample(dtype, (4, 3)), module=True)
        run("diagonal", sample(dtype, (2, 3, 4)), offset=1, module=True)
        run("matrix_power", sample(dtype, (3, 3)), 3, module=True)
        run("matrix_power", sample(dtype, (3, 3)), 0, module=True)
        run("outer", a[0], b[0], module=True)
        run("trace", sample(dtype, (2, 3, 3)), module=True)
        for order in (1, 2, 3.5, float("inf"), -float("inf"), 0):
            run("vector_norm", a, ord=order, axis=1, module=True)
        run("vector_norm", a, module=True)
        for order in ("fro", 1, -1, float("inf"), -float("inf")):
            run("matrix_norm", a, ord=order, module=True)


def check_dtypes():
    names = FLOATS + INTS + ["bool"]
    for a in names:
        for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating",
                     "numeric", ("integral", "bool")):
            check(gd.isdtype(getattr(gd, a), kind) == strict.isdtype(getattr(strict, a), kind), f"isdtype {a} {kind}")
        if a in FLOATS:
            mine, theirs = gd.finfo(getattr(gd, a)), strict.finfo(getattr(strict, a))
            for field in ("bits", "eps", "max", "min", "smallest_normal"):
                check(getattr(mine, field) == getattr(theirs, field), f"finfo {a} {field}")
        if a in INTS:
            mine, theirs = gd.iinfo(getattr(gd, a)), strict.iinfo(getattr(strict, a))
            check((mine.bits, mine.max, mine.min) == (theirs.bits, theirs.max, theirs.min), f"iinfo {a}")
        for b in names:
            try:
                expected = str(strict.result_type(getattr(strict, a), getattr(strict, b))).rsplit(".", 1)[-1]
            except TypeError:
                continue
            if expected != "int16":
                check(str(gd.result_type(getattr(gd, a), getattr(gd, b))) == expected, f"result_type {a} {b}")


check_names(gd, strict, _missing.functions)
check_names(gd.linalg, strict.linalg, _missing.linalg)
check_arguments(gd, strict)
check_arguments(gd.linalg, strict.linalg)
check_elementwise()
check_reductions()
check_shapes()
check_creation()
check_searching()
check_linalg()
check_dtypes()
print(f"{passed} passed, {len(failures)} failed")
raise SystemExit(bool(failures))
