"""torch.linalg, as far as there are ops for it."""
from __future__ import annotations

from gradus import _core, linalg as _standard
from gradus._torch_methods import _axes, _either
from gradus.linalg import matmul, matrix_power

__all__ = [
    "cross", "diagonal", "matmul", "matrix_norm", "matrix_power", "multi_dot", "norm", "vander", "vecdot",
    "vector_norm",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gradus._core import Tensor


def _as(x, dtype) -> Tensor:
    return x if dtype is None else x.to(dtype)


@_either
def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None) -> Tensor:
    """The norm of vectors, or of all elements."""
    return _core.norm(_as(x, dtype), ord, _axes(dim), keepdim)


@_either
def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None) -> Tensor:
    """The norm of matrices: 'fro', 1, -1, inf or -inf."""
    if ord in (2, -2, "nuc"):
        raise _core.UnsupportedError(f"matrix_norm of order {ord!r} needs singular values, which are not there yet")
    return _core.matrix_norm(_as(A, dtype), None if ord == "fro" else ord, dim, keepdim)


@_either
def norm(A, ord=None, dim=None, keepdim=False, *, dtype=None) -> Tensor:
    """The norm of vectors (one axis) or matrices (two axes)."""
    if ord is None or not (isinstance(dim, (tuple, list)) and len(dim) == 2 or dim is None and A.ndim == 2):
        return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)
    return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)


def diagonal(A, *, offset=0, dim1=-2, dim2=-1) -> Tensor:
    """The diagonals of matrices."""
    return _core.diagonal(A, offset, dim1, dim2)


def cross(input, other, *, dim=-1) -> Tensor:
    """The vector product."""
    return _standard.cross(input, other, axis=dim)


def vecdot(x, y, *, dim=-1) -> Tensor:
    """The scalar products along an axis."""
    return _standard.vecdot(x, y, axis=dim)


def multi_dot(tensors) -> Tensor:
    """The product of several matrices."""
    y = tensors[0]
    for t in tensors[1:]:
        y = y @ t
    return y


def vander(x, N=None) -> Tensor:
    """The powers 0 to N - 1 of each element, as a new last axis."""
    n = x.shape[-1] if N is None else N
    return _core.stack([x**i for i in range(n)], -1)


def __getattr__(name) -> Any:
    return getattr(_standard, name)
