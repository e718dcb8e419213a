"""gradus.nn.init: initial values, written into a tensor, with PyTorch's names and meanings."""
from __future__ import annotations

import math as _math
from typing import Any, Literal

from gradus import _core
from gradus._core import Tensor


def _write(tensor: Tensor, values: Any) -> Tensor:
    before = _core._grad_mode(False)
    try:
        tensor.copy_(values)
    finally:
        _core._grad_mode_end(before)
    return tensor


def _like(tensor: Tensor) -> dict[str, Any]:
    """Random numbers are drawn in f32 for narrower dtypes."""
    wide = tensor.dtype if tensor.dtype == _core.float64 else _core.float32
    return {"dtype": wide, "device": tensor.device}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a layer before this function should scale its weights."""
    if nonlinearity == "leaky_relu":
        return _math.sqrt(2 / (1 + (0.01 if param is None else float(param)) ** 2))
    gains = {"tanh": 5 / 3, "relu": _math.sqrt(2), "selu": 3 / 4}
    linear = ("linear", "sigmoid", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
              "conv_transpose3d")
    if nonlinearity in linear:
        return 1.0
    if nonlinearity not in gains:
        raise _core.ArgumentError(f"nonlinearity is {nonlinearity!r}; it is one of: leaky_relu {' '.join(gains)} "
                                  f"{' '.join(linear)}")
    return gains[nonlinearity]


def _fans(tensor: Tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise _core.ShapeError(f"the tensor is {tuple(tensor.shape)}; fan in and fan out need at least 2 dimensions")
    window = _math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def _fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise _core.ArgumentError(f"mode is {mode!r}; it is 'fan_in' or 'fan_out'")
    return _fans(tensor)[mode == "fan_out"]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: None = None) -> Tensor:
    """Random numbers between a and b."""
    _no_generator(generator)
    return _write(tensor, _core.uniform(tensor.shape, a, b, **_like(tensor)))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: None = None) -> Tensor:
    """Normal random numbers."""
    _no_generator(generator)
    return _write(tensor, _core.randn(tensor.shape, **_like(tensor)) * std + mean)


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
                  generator: None = None) -> Tensor:
    """Normal random numbers between a and b; these are values, not standard deviations."""
    _no_generator(generator)
    made = _core._records("init")["truncated_normal"][1]
    return _write(tensor, made(tuple(tensor.shape), mean, std, low=(a - mean) / std, high=(b - mean) / std))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One number everywhere."""
    return _write(tensor, _core.full(tensor.shape, val, dtype=tensor.dtype, device=tensor.device))


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return constant_(tensor, 1.0)


def eye_(tensor: Tensor) -> Tensor:
    """The identity, for a matrix."""
    if tensor.ndim != 2:
        raise _core.ShapeError(f"the tensor is {tuple(tensor.shape)}; eye_ needs 2 dimensions")
    return _write(tensor, _core.eye(tensor.shape[0], tensor.shape[1], dtype=tensor.dtype, device=tensor.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution that returns its input, for a weight (out, in, window...)."""
    if tensor.ndim not in (3, 4, 5):
        raise _core.ShapeError(f"the tensor is {tuple(tensor.shape)}; dirac_ needs 3, 4 or 5 dimensions")
    if tensor.shape[0] % groups:
        raise _core.ArgumentError(f"groups is {groups}; it must divide {tensor.shape[0]}")
    values = _core.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    out = tensor.shape[0] // groups
    center = tuple(n // 2 for n in tensor.shape[2:])
    for g in range(groups):
        for k in range(min(out, tensor.shape[1])):
            values[(g * out + k, k) + center] = 1
    return _write(tensor, values)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: None = None) -> Tensor:
    """Glorot and Bengio 2010: the variance is gain^2 * 2 / (fan in + fan out)."""
    bound = gain * _math.sqrt(6 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: None = None) -> Tensor:
    """xavier_uniform_ with normal numbers."""
    return normal_(tensor, 0.0, gain * _math.sqrt(2 / sum(_fans(tensor))), generator)


def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: Literal["fan_in", "fan_out"] = "fan_in",
                     nonlinearity: str = "leaky_relu", generator: None = None) -> Tensor:
    """He et al. 2015: the variance is gain^2 / fan; `a` is the slope of leaky_relu."""
    bound = calculate_gain(nonlinearity, a) * _math.sqrt(3 / _fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: Tensor, a: float = 0, mode: Literal["fan_in", "fan_out"] = "fan_in",
                    nonlinearity: str = "leaky_relu", generator: None = None) -> Tensor:
    """kaiming_uniform_ with normal numbers."""
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / _math.sqrt(_fan(tensor, mode)), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: None = None) -> Tensor:
    """Saxe et al. 2013: the rows, or columns if these are fewer, are orthogonal and have the norm `gain`."""
    _no_generator(generator)
    _fans(tensor)
    made = _core._records("init")["orthogonal"][1](tuple(tensor.shape), gain=float(gain))
    return _write(tensor, made)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: None = None) -> Tensor:
    """Normal random numbers, and in each column of a matrix the fraction `sparsity` of zeros."""
    if tensor.ndim != 2:
        raise _core.ShapeError(f"the tensor is {tuple(tensor.shape)}; sparse_ needs 2 dimensions")
    normal_(tensor, 0.0, std, generator)
    rows, columns = tensor.shape
    rank = _core.argsort(_core.argsort(_core.rand((rows, columns), **_like(tensor)), 0), 0)
    return _write(tensor, _core.where(rank < _math.ceil(sparsity * rows), 0.0, tensor.detach()))


def _no_generator(generator: None) -> None:
    if generator is not None:
        raise _core.UnsupportedError("there are no generators; gd.manual_seed makes random numbers repeatable")
