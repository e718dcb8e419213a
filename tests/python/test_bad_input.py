"""Random arguments of every wrong kind for every function, method and constructor: exceptions, but no crash and no leak.

GRADUS_TEST_FULL=1 runs for an hour, or for GRADUS_FUZZ_SECONDS. GRADUS_FUZZ_SEED begins elsewhere; a run prints its seed
when it fails."""
import ctypes
import gc
import inspect
import os
import random
import resource
import threading
import time
import unittest

import gradus as gd
from gradus import _core


class Liar:
    """Raises or lies in whatever a conversion asks for."""

    def __init__(self, how):
        self.how = how

    def answer(self, honest):
        if self.how == "raise":
            raise RuntimeError("it does not answer")
        return {"negative": -1, "huge": 2 ** 80, "text": "7", "none": None, "self": self}.get(self.how, honest)

    def __len__(self):
        return self.answer(3)

    def __getitem__(self, i):
        if i == 5:
            raise IndexError
        return self.answer(1.0)

    def __index__(self):
        return self.answer(2)

    def __float__(self):
        return self.answer(2.5)

    def __bool__(self):
        return self.answer(True)

    def __array__(self, *args, **names):
        return self.answer([1.0])

    def __repr__(self):
        return f"Liar({self.how!r})"


class DlpackLiar(Liar):
    def __dlpack__(self, **names):
        return self.answer(object())

    def __dlpack_device__(self):
        return self.answer((1, 0))


class Mapping(dict):
    pass


SANITIZED = "san" in os.environ.get("LD_PRELOAD", "")  # then memory cannot be limited, so that sizes are small
if not SANITIZED:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
LARGE = [2 ** 31, -2 ** 63, 2 ** 63 - 1]


def values(rng):
    """Something that a program may pass by mistake."""
    shapes = [(), (0,), (1,), (3,), (2, 3), (1, 0, 2), (1,) * 8, (2, 1, 2, 1)]
    dtypes = [gd.float32, gd.float64, gd.float16, gd.bfloat16, gd.int8, gd.uint8, gd.int32, gd.int64, gd.bool]
    kinds = [
        lambda: None, lambda: rng.choice([True, False]), lambda: rng.choice([0, 1, -1, 2, 7] + ([] if SANITIZED else LARGE)),
        lambda: 2 ** 70, lambda: rng.choice([0.0, -0.0, 0.5, -3.0, 1e300, float("inf"), float("nan")]), lambda: 1j,
        lambda: rng.choice(["", "mean", "cpu", "cuda:7", "float32", "x" * 1000, "\0", "\ud800"]), lambda: b"bytes",
        lambda: [], lambda: [1, [2, 3]], lambda: [[1.0, 2.0], [3.0, 4.0]], lambda: (1, 2, 3), lambda: tuple(range(20)),
        lambda: {}, lambda: {"a": 1}, lambda: {1, 2}, lambda: range(3), lambda: iter([1, 2]), lambda: object(),
        lambda: len, lambda: gd, lambda: Mapping(x=1), lambda: slice(1, None), lambda: ..., lambda: memoryview(b"abcd"),
        lambda: bytearray(8), lambda: (ctypes.c_double * 3)(1, 2, 3), lambda: gd.float32, lambda: gd.device("cpu"),
        lambda: Liar(rng.choice(["raise", "negative", "huge", "text", "none", "self", "honest"])),
        lambda: DlpackLiar(rng.choice(["raise", "negative", "text", "none", "honest"])),
        lambda: gd.nn.Linear(2, 3), lambda: threading.Lock(),
    ]
    if rng.random() < 0.5:
        shape = rng.choice(shapes)
        x = gd.ones(shape).to(rng.choice(dtypes))
        if rng.random() < 0.2 and x.dtype in (gd.float32, gd.float64):
            x.requires_grad_()
        return x
    return rng.choice(kinds)()


def names_of(function):
    """The argument names of a signature."""
    text = getattr(function, "__text_signature__", None) or ""
    return [part.strip(" *$").split("=")[0] for part in text.strip("()").split(",") if part.strip(" *$/")]


SKIPPED = {"set_num_threads", "set_default_device", "manual_seed", "set_rng_state", "allow_tf32"}  # settings of the process


def functions():
    """Pairs of a name and a function."""
    for name in sorted(dir(_core)):
        function = getattr(_core, name)
        if callable(function) and name not in SKIPPED and not isinstance(function, type) and name[0] != "_":
            yield name, function
    for name in sorted(dir(gd.Tensor)):
        function = getattr(gd.Tensor, name)
        if callable(function) and "Tensor." + name not in SKIPPED and not isinstance(function, type):
            yield "Tensor." + name, function
    for kind in ("layer", "optimizer", "schedule", "metric", "callback", "transform", "init"):
        for name, (_, init, _) in sorted(_core._records(kind).items()):
            if kind == "init":
                yield name, init
            else:
                cls = {"layer": _core.Module, "optimizer": _core.Optimizer, "schedule": _core.Schedule,
                       "metric": _core.Metric, "callback": _core.Callback, "transform": _core.Transform}[kind]
                yield name, (lambda *args, _cls=cls, _init=init, **names: _init(_cls.__new__(_cls), *args, **names))


    for name in sorted(dir(gd.nn)):
        cls = getattr(gd.nn, name)
        if isinstance(cls, type) and issubclass(cls, gd.nn.Module):
            yield "nn." + name, made_and_called(cls)
    for name in sorted(dir(gd.nn.init)):
        function = getattr(gd.nn.init, name)
        if callable(function) and name[-1] == "_" and name[0] != "_":
            yield "nn.init." + name, function


def made_and_called(cls):
    """A function that makes a module of the first arguments and calls it with the others."""
    def function(*args, **named):
        half = (len(args) + 1) // 2
        cls(*args[:half], **named)(*args[half:])

    function.__text_signature__ = ", ".join(n for n in inspect.signature(cls.__init__).parameters if n != "self")
    return function


def call(rng, name, function, names):
    args = [values(rng) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4, 7]))]
    named = {rng.choice(names): values(rng) for _ in range(rng.choice([0, 0, 1, 2]))} if names else {}
    if rng.random() < 0.05:
        named["no_such_argument"] = 1
    try:
        function(*args, **named)
    except Exception as mistake:
        if not str(mistake) and not isinstance(mistake, (MemoryError, StopIteration, AssertionError, RecursionError)):
            raise AssertionError(f"{name}: an exception without a message: {mistake!r}") from mistake


class BadInput(unittest.TestCase):
    def test_wrong_arguments_are_exceptions(self):
        full = os.environ.get("GRADUS_TEST_FULL")
        seconds = float(os.environ.get("GRADUS_FUZZ_SECONDS", 3600 if full else 4))
        seed = int(os.environ.get("GRADUS_FUZZ_SEED", 1))
        rng, all_functions = random.Random(seed), [(n, f, names_of(f)) for n, f in functions()]
        self.assertGreater(len(all_functions), 700)
        before = self.live()
        end, count = time.monotonic() + seconds, 0
        path = os.environ.get("GRADUS_FUZZ_TRACE")  # the file names the last call, if one crashes
        trace = open(path, "w") if path else None
        while time.monotonic() < end:
            for name, function, names in all_functions:
                if trace:
                    trace.seek(0)
                    trace.write(f"{name} {count} seed {seed}" + " " * 40 + "\n")
                    trace.flush()
                call(rng, name, function, names)
                count += 1
                if time.monotonic() > end:
                    break
        self.assertEqual(self.live(), before, f"live objects after {count} calls with seed {seed}")

    def live(self):
        gc.collect()
        gd.set_default_device("cpu")
        return _core._live_objects()


if __name__ == "__main__":
    unittest.main()
