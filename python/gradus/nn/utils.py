"""gradus.nn.utils: gradients of many parameters at once."""
from __future__ import annotations

from collections.abc import Iterable

from gradus import _core
from gradus._core import Tensor


def _listed(parameters: Tensor | Iterable[Tensor]) -> tuple[Tensor, ...]:
    return (parameters,) if isinstance(parameters, Tensor) else tuple(parameters)


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0,
                    error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """Scales the gradients so that the norm of all of them, as one vector, is at most max_norm. Returns the norm before."""
    norm: Tensor = _core._clip_grad_norm(_listed(parameters), float(max_norm), float(norm_type), error_if_nonfinite)
    return norm


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamps every element of the gradients to [-clip_value, clip_value]."""
    _core._clip_grad_value(_listed(parameters), float(clip_value))


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters one after the other, as one tensor of rank 1."""
    return _core.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Writes the parts of a vector into the parameters."""
    at = 0
    for p in parameters:
        p.detach().copy_(vec[at:at + p.numel()].reshape(p.shape))
        at += p.numel()
