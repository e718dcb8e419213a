"""Gradus: deep learning in C, from Python.

    import gradus as gd

    x = gd.randn(64, 1000)
    w = gd.randn(1000, 10, requires_grad=True)
    loss = gd.mse_loss(x @ w, gd.zeros(64, 10))
    loss.backward()
    print(w.grad.shape)

Functions that the Python Array API standard has mean here what they mean there; all others mean what they mean in
PyTorch, and so do the methods of a tensor. ``import gradus.torch as torch`` has PyTorch's meaning for all of them.
"""
import importlib as _importlib
import sys as _sys

from gradus import _core

TYPE_CHECKING = False
if TYPE_CHECKING:  # a type checker keeps the first meaning of a name
    from gradus._autograd import (
        Function as Function, gradcheck as gradcheck, hessian as hessian, hvp as hvp, jacobian as jacobian, jvp as jvp,
        recompute as recompute, vjp as vjp)
    from gradus._graphs import (
        Graph as Graph, Session as Session, after as after, call_op as call_op, cond as cond, define_op as define_op,
        foldl as foldl, gradients as gradients, minimize as minimize, name_scope as name_scope, named as named,
        placeholder as placeholder, scan as scan, variable as variable, while_loop as while_loop)
    from gradus._jit import Jit as Jit, jit as jit
    from gradus import nn as nn, zoo as zoo
    from gradus._functions import *
    from gradus._core import (
        add as add, divide as divide, empty as empty, equal as equal, max as max, min as min, round as round,
        subtract as subtract, where as where)
    from gradus._nn_functions import *
    from gradus._torch_functions import *  # type: ignore[assignment]
    from gradus._torch_methods import *  # type: ignore[assignment]
    from gradus._core import *  # type: ignore[assignment]
else:  # and the interpreter the last
    from gradus._core import *  # noqa: F401,F403 (the functions of all ops)
    from gradus import _methods  # noqa: F401 (adds methods to Tensor)
    from gradus._torch_methods import *  # noqa: F401,F403 (PyTorch's functions, which are methods, too)
    from gradus._torch_functions import *  # noqa: F401,F403
    from gradus._nn_functions import *  # noqa: F401,F403
    from gradus._core import add, divide, empty, equal, max, min, round, subtract, where  # noqa: F401 (the standard's)
    from gradus._functions import *  # noqa: F401,F403 (the standard's)
    del Graph, Jit, Session  # noqa: F821 (those that programs use are in _lazy)
from gradus._core import __version__ as __version__
from gradus._modes import *  # noqa: F401,F403

if TYPE_CHECKING:
    from gradus import caffe as caffe, callbacks as callbacks, metrics as metrics, onnx as onnx, optim as optim, profiler as profiler
    from gradus import tensorboard as tensorboard
    import gradus.nn.utils as _nn_utils
    from gradus._files import load as load, save as save
    from gradus._state import load_state as load_state, save_state as save_state

e, pi, inf, nan, newaxis = 2.718281828459045, 3.141592653589793, float("inf"), float("nan"), None

_submodules = (
    "caffe", "callbacks", "data", "linalg", "metrics", "nn", "onnx", "optim", "profiler", "tensorboard", "torch", "transforms", "zoo")
_lazy = {  # names whose module is imported when they are first used
    **dict.fromkeys(("Jit", "jit"), "_jit"),
    **dict.fromkeys((
        "Graph", "Session", "after", "call_op", "cond", "define_op", "foldl", "gradients", "minimize", "name_scope",
        "named", "placeholder", "scan", "variable", "while_loop"), "_graphs"),
    **dict.fromkeys(("Function", "gradcheck", "hessian", "hvp", "jacobian", "jvp", "recompute", "vjp"), "_autograd"),
    **dict.fromkeys(("load", "save"), "_files"), **dict.fromkeys(("load_state", "save_state"), "_state"),
}


def get_include() -> str:
    """The folder of the C headers, for programs that use the library of this package (get_library)."""
    return _packaged("include", "gradus", "gradus.h")[:-len("/gradus/gradus.h")]


def get_library() -> str:
    """The file of the C library. A program that is linked with it needs its folder as run path."""
    return _packaged("libgradus.so.0")


def _packaged(*names: str) -> str:
    import os

    path = os.path.join(os.path.dirname(_core.__file__), *names)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path} does not exist: headers and library are part of an installed package")
    return path


if not TYPE_CHECKING:  # it would make every name right for a type checker

    def __getattr__(name):
        if name in _submodules:
            return _importlib.import_module("gradus." + name)
        if name in _lazy:
            value = globals()[name] = getattr(_importlib.import_module("gradus." + _lazy[name]), name)
            return value
        if name.startswith("_"):
            raise AttributeError(f"module 'gradus' has no attribute '{name}'")
        raise AttributeError(_importlib.import_module("gradus._missing").explain(name), name=name, obj=_sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_submodules) | set(_lazy))
