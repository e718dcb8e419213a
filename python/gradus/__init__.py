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

from gradus import _core
from gradus._core import *  # noqa: F401,F403 (the functions of all ops)
from gradus._core import __version__, _live_objects  # noqa: F401
from gradus._modes import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: F401
from gradus._functions import *  # noqa: F401,F403
from gradus import _methods  # noqa: F401 (adds methods to Tensor)

e, pi, inf, nan, newaxis = 2.718281828459045, 3.141592653589793, float("inf"), float("nan"), None

_submodules = ("linalg", "torch")


def __getattr__(name):
    if name in _submodules:
        return _importlib.import_module("gradus." + name)
    if name.startswith("_"):
        raise AttributeError(f"module 'gradus' has no attribute '{name}'")
    raise AttributeError(_importlib.import_module("gradus._missing").explain(name))


def __dir__():
    return sorted(set(globals()) | set(_submodules))
