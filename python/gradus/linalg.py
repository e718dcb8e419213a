"""Linear algebra of the Python Array API standard, as far as there are ops for it."""
from __future__ import annotations

from gradus import _core
from gradus._core import matmul, outer
from gradus._functions import cross, diff, matrix_transpose, tensordot, trace, vecdot  # noqa: F401

__all__ = ["cross", "diagonal", "matmul", "matrix_norm", "matrix_power", "matrix_transpose", "outer", "tensordot",
           "trace", "vecdot", "vector_norm"]

def diagonal(x, /, *, offset=0) -> _core.Tensor:
    """The diagonals of matrices."""
    return _core.diagonal(x, offset=offset, axis1=-2, axis2=-1)


def matrix_power(x, n, /) -> _core.Tensor:
    """The product of n equal matrices."""
    if n < 0:
        raise _core.UnsupportedError("matrix_power of a negative exponent needs an inverse, which is not there yet")
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise _core.ShapeError(f"matrix_power is for square matrices, not for the shape {x.shape}")
    from gradus import broadcast_to, eye

    y = broadcast_to(eye(x.shape[-1], dtype=x.dtype, device=x.device), x.shape) if n == 0 else None
    while n:
        if n & 1:
            y = x if y is None else y @ x
        x, n = x @ x if n > 1 else x, n >> 1
    return y


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2) -> _core.Tensor:
    """The norm of vectors: ord is a number, inf or -inf."""
    return _core.norm(x, p=ord, axis=axis, keepdims=keepdims)


def matrix_norm(x, /, *, keepdims=False, ord="fro") -> _core.Tensor:
    """The norm of matrices: 'fro', 1, -1, inf or -inf."""
    if ord in (2, -2, "nuc"):
        raise _core.UnsupportedError(f"matrix_norm of order {ord!r} needs singular values, which are not there yet")
    return _core.matrix_norm(x, ord=None if ord == "fro" else ord, keepdims=keepdims)


def __getattr__(name) -> object:
    from gradus import _missing

    if name in _missing.linalg:
        raise AttributeError(f"gradus.linalg has no {name} yet (the array API standard has it)")
    raise AttributeError(f"module 'gradus.linalg' has no attribute '{name}'")
