"""torch.autograd.functional: derivatives of functions of a tensor or of a tuple of tensors."""
from __future__ import annotations

from gradus import _autograd
from gradus._autograd import hessian as _hessian, jacobian as _jacobian
from gradus._core import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _all(inputs):
    return (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)


def _ones(result, v):
    if v is not None:
        return v
    if not isinstance(result, Tensor) or result.numel() != 1:
        raise RuntimeError("v may be left out only if the function returns one element")
    return result.new_ones(result.shape)


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The Jacobian: its shape is the output's followed by the input's."""
    return _jacobian(func, inputs, create_graph)


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The second derivatives of a function with one output element."""
    return _hessian(func, inputs, create_graph)


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """The result, and v times the Jacobian."""
    result, pull = _autograd.vjp(func, *_all(inputs))
    found = pull(_ones(result, v))
    return result, found[0] if isinstance(inputs, Tensor) else found


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """The result, and the Jacobian times v."""
    if v is None:
        v = tuple(_ones(x, None) for x in _all(inputs))
    return _autograd.jvp(func, _all(inputs), v)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """The result, and the Hessian times v."""
    if v is None:
        v = tuple(_ones(x, None) for x in _all(inputs))
    return _autograd.hvp(func, inputs, v)


vhp = hvp  # the Hessian is symmetric
