"""Functions with PyTorch's meaning that are not one op and not methods, too."""
from __future__ import annotations

import builtins as _b

from gradus import _core, _functions
from gradus._core import Tensor
from gradus._functions import broadcast_shapes as _broadcast_shapes
from gradus._torch_methods import clamp, div, nonzero, sub

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

clip, subtract, argwhere, ger, divide, true_divide = clamp, sub, nonzero, _core.outer, div, div


def _sizes(size) -> Any:
    return size[0] if len(size) == 1 and not isinstance(size[0], _b.int) else size


# --- creation -------------------------------------------------------------------------------------


def empty(*size, dtype=None, device=None, requires_grad=False) -> Tensor:
    """A tensor whose elements are not set."""
    return _core.empty(_sizes(size), dtype=dtype, device=device, requires_grad=requires_grad)


def empty_like(input, *, dtype=None, device=None, requires_grad=False, **ignored) -> Tensor:
    """A tensor like another one, whose elements are not set."""
    return _functions.empty_like(input, dtype=dtype, device=device, requires_grad=requires_grad)


def full(size, fill_value, *, dtype=None, device=None, requires_grad=False) -> Tensor:
    """One value; without a dtype bool, int64 or float32, as the value is."""
    if dtype is None:
        kind = type(fill_value)
        dtype = _core.bool if kind is _b.bool else _core.int64 if kind is _b.int else _core.float32
    return _core.full(size, fill_value, dtype=dtype, device=device, requires_grad=requires_grad)


def arange(start=0, end=None, step=1, *, dtype=None, device=None, requires_grad=False) -> Tensor:
    """Numbers from start to end in steps; of ints if all three are, else of floats."""
    return _functions.arange(start, end, step, dtype=dtype, device=device, requires_grad=requires_grad)


def linspace(start, end, steps, *, dtype=None, device=None, requires_grad=False) -> Tensor:
    """Evenly spaced numbers from start to end."""
    return _core.linspace(start, end, steps, dtype=dtype, device=device, requires_grad=requires_grad)


def logspace(start, end, steps, base=10.0, *, dtype=None, device=None, requires_grad=False) -> Tensor:
    """Powers of base, whose exponents are evenly spaced."""
    y = _core.pow(base, _core.linspace(start, end, steps, dtype=dtype, device=device))
    return y.requires_grad_() if requires_grad else y


def eye(n, m=None, *, dtype=None, device=None, requires_grad=False) -> Tensor:
    """Ones on the main diagonal, zeros elsewhere."""
    return _core.eye(n, m, dtype=dtype, device=device, requires_grad=requires_grad)


def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False) -> Tensor:
    """The bytes of a buffer as numbers, in one axis; memory is shared."""
    letters = {"bool": "?", "uint8": "B", "int8": "b", "int32": "i", "int64": "q", "float16": "e", "float32": "f",
               "float64": "d"}
    view = memoryview(buffer).cast("B")[offset:]
    size = dtype.itemsize
    count = len(view) // size if count < 0 else count
    view = view[: count * size]
    if str(dtype) not in letters:
        y = _core._from_bytes(bytes(view), dtype, (count,))
    else:
        y = _core.as_tensor(view.cast(letters[str(dtype)]))
    return y.requires_grad_() if requires_grad else y


def normal(mean=0.0, std=1.0, size=None, *, dtype=None, device=None, requires_grad=False) -> Tensor:
    """Random numbers from normal distributions: mean and std are numbers or tensors."""
    if size is not None:
        return _core.normal(mean, std, size, dtype=dtype, device=device, requires_grad=requires_grad)
    given = [t for t in (mean, std) if isinstance(t, Tensor)]
    if not given:
        raise _core.ArgumentError("normal of two numbers needs a size")
    shape = _broadcast_shapes(*(t.shape for t in given))
    return mean + std * _core.randn(shape, dtype=given[0].dtype, device=given[0].device)


def scalar_tensor(s, *, dtype=None, device=None, requires_grad=False) -> Tensor:
    """A tensor of rank 0."""
    return _core.tensor(s, dtype=dtype or _core.float32, device=device, requires_grad=requires_grad)


def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False) -> Tensor:
    """The data as a tensor."""
    y = _functions.asarray(obj, dtype=dtype, device=device, copy=copy)
    return y.requires_grad_() if requires_grad else y


def randint(low, high=None, size=None, *, dtype=None, device=None, requires_grad=False) -> Tensor:
    """Random integers from low to high - 1: randint(10, (2, 3)), randint(3, 10, (2, 3))."""
    if size is None and not isinstance(high, _b.int):  # without low
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    return _core.randint(low, high, size, dtype=dtype, device=device, requires_grad=requires_grad)


def randint_like(input, low, high=None, *, dtype=None, device=None, requires_grad=False) -> Tensor:
    """Random integers in the shape of another tensor."""
    low, high = (0, low) if high is None else (low, high)
    return _core.randint(low, high, input.shape, dtype=dtype or input.dtype, device=device or input.device,
                         requires_grad=requires_grad)


def meshgrid(*tensors, indexing="ij") -> tuple[Tensor, ...]:
    """Coordinate matrices of vectors."""
    return tuple(_functions.meshgrid(*tensors, indexing=indexing))


def tril_indices(row, col, offset=0, *, dtype=None, device=None) -> Tensor:
    """The places of the lower triangle of a matrix: a row of rows and a row of columns."""
    places = _core.tril(_core.ones(row, col, device=device), offset) != 0
    return _core.nonzero(places).T.contiguous().to(dtype or _core.int64)


def triu_indices(row, col, offset=0, *, dtype=None, device=None) -> Tensor:
    """The places of the upper triangle of a matrix: a row of rows and a row of columns."""
    places = _core.triu(_core.ones(row, col, device=device), offset) != 0
    return _core.nonzero(places).T.contiguous().to(dtype or _core.int64)


# --- joining and shapes ---------------------------------------------------------------------------


def _listed(tensors) -> list[Tensor]:
    return list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)


def atleast_1d(*tensors) -> Any:
    """Tensors of at least one dimension."""
    results = tuple(t.reshape(1) if t.ndim == 0 else t for t in _listed(tensors))
    return results[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else results


def atleast_2d(*tensors) -> Any:
    """Tensors of at least two dimensions."""
    results = tuple(t.reshape(1, -1) if t.ndim < 2 else t for t in _listed(tensors))
    return results[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else results


def atleast_3d(*tensors) -> Any:
    """Tensors of at least three dimensions."""
    results = tuple(t.reshape(1, -1, 1) if t.ndim < 2 else t.unsqueeze(-1) if t.ndim == 2 else t
                    for t in _listed(tensors))
    return results[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else results


def hstack(tensors) -> Tensor:
    """Tensors joined along the second axis; vectors along the first."""
    tensors = [t.reshape(1) if t.ndim == 0 else t for t in tensors]
    return _core.cat(tensors, 0 if tensors[0].ndim == 1 else 1)


def vstack(tensors) -> Tensor:
    """Tensors joined along the first axis; vectors are rows."""
    return _core.cat([t.reshape(1, -1) if t.ndim < 2 else t for t in tensors], 0)


row_stack = vstack


def dstack(tensors) -> Tensor:
    """Tensors joined along the third axis."""
    return _core.cat(list(atleast_3d(list(tensors))), 2)


def column_stack(tensors) -> Tensor:
    """Tensors joined along the second axis; vectors are columns."""
    return _core.cat([t.reshape(-1, 1) if t.ndim < 2 else t for t in tensors], 1)


def broadcast_tensors(*tensors) -> tuple[Tensor, ...]:
    """All tensors broadcast to one shape."""
    shape = _broadcast_shapes(*(t.shape for t in tensors))
    return tuple(_core.expand(t, shape) for t in tensors)


def broadcast_shapes(*shapes) -> tuple[_b.int, ...]:
    """The shape to which all shapes broadcast."""
    return _broadcast_shapes(*((s,) if isinstance(s, _b.int) else s for s in shapes))


def block_diag(*tensors) -> Tensor:
    """The matrix with these matrices on its diagonal."""
    tensors = [t.reshape(1, -1) if t.ndim < 2 else t for t in tensors]
    width, rows, left = _b.sum(t.shape[1] for t in tensors), [], 0
    for t in tensors:
        rows.append(_core.pad(t, [left, width - left - t.shape[1]]))
        left += t.shape[1]
    return _core.cat(rows, 0)


def cartesian_prod(*tensors) -> Tensor:
    """All combinations of the elements of vectors, as rows."""
    return _core.stack([g.reshape(-1) for g in meshgrid(*tensors)], 1)


def where(condition, input=None, other=None) -> Any:
    """The elements of input where the condition is true, those of other elsewhere; alone: the places."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    return _core.where(condition, input, other)


# --- products -------------------------------------------------------------------------------------


def einsum(equation, *operands) -> Tensor:
    """Products and sums of axes named by letters."""
    operands = _listed(operands)
    dtype = _functions.result_type(*operands)
    return _core.einsum(equation, operands, dtype=None if dtype.is_floating_point else dtype)  # else sums of int64


def tensordot(a, b, dims=2, out=None) -> Tensor:
    """Products summed over pairs of axes."""
    return _functions.tensordot(a, b, axes=dims)


def chain_matmul(*matrices) -> Tensor:
    """The product of several matrices."""
    y, *others = _listed(matrices)
    for t in others:
        y = y @ t
    return y


def trapezoid(y, x=None, *, dx=1.0, dim=-1) -> Tensor:
    """The integral along an axis by the trapezoidal rule."""
    n = y.shape[dim]
    pairs = _core.narrow(y, dim, 1, n - 1) + _core.narrow(y, dim, 0, n - 1)
    if x is not None:
        shape = [1] * y.ndim
        shape[dim] = -1
        x = x.reshape(shape) if x.ndim == 1 else x
        dx = _core.narrow(x, dim, 1, n - 1) - _core.narrow(x, dim, 0, n - 1)
    return _core.sum(pairs * dx / 2, dim)


trapz = trapezoid


def searchsorted(sorted_sequence, input, /, *, out_int32=False, right=False, side=None, sorter=None) -> Tensor:
    """Where the numbers would be inserted into sorted ones, or into those that sorter sorts. It compares all pairs."""
    if sorter is not None:
        sorted_sequence = _core.gather(sorted_sequence, -1, sorter)
    if not isinstance(input, Tensor):
        input = _core.tensor(input, device=sorted_sequence.device)
    numbers, edges = input.unsqueeze(-1), sorted_sequence.unsqueeze(-2)
    below = edges <= numbers if right or side == "right" else edges < numbers
    return _core.sum(below, -1, dtype=_core.int32 if out_int32 else _core.int64)


def bucketize(input, boundaries, *, out_int32=False, right=False) -> Tensor:
    """The number of the interval in which each element lies."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def isin(elements, test_elements, *, assume_unique=False, invert=False) -> Tensor:
    """Which elements are among others."""
    return _functions.isin(elements, test_elements, invert=invert)


def cov(input, *, correction=1) -> Tensor:
    """The covariances of variables, which are the rows."""
    x = input.reshape(1, -1) if input.ndim < 2 else input
    x = x - _core.mean(x, 1, True)
    y = x @ x.T / (x.shape[1] - correction)
    return y.reshape(()) if input.ndim < 2 else y


def corrcoef(input) -> Tensor:
    """The correlations of variables, which are the rows."""
    c = cov(input)
    if c.ndim == 0:
        return c / c
    d = _core.sqrt(_core.diagonal(c))
    return c / d.unsqueeze(0) / d.unsqueeze(1)


def vdot(input, other) -> Tensor:
    """The scalar product of two vectors."""
    return _core.dot(input, other)


# --- cells ----------------------------------------------------------------------------------------


def rnn_tanh_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None) -> Tensor:
    """A step of a recurrent network with tanh."""
    return _core.rnn_cell(input, hx, w_ih, w_hh, b_ih, b_hh, activation="tanh")


def rnn_relu_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None) -> Tensor:
    """A step of a recurrent network with relu."""
    return _core.rnn_cell(input, hx, w_ih, w_hh, b_ih, b_hh, activation="relu")


def lstm_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None) -> Any:
    """A step of an LSTM: hx is (h, c), and so is the result."""
    return _core.lstm_cell(input, hx[0], hx[1], w_ih, w_hh, b_ih, b_hh)


# --- dtypes and settings --------------------------------------------------------------------------


def is_floating_point(input) -> _b.bool:
    """Whether the elements are floats."""
    return input.dtype.is_floating_point


def is_complex(input) -> _b.bool:
    """Whether the elements are complex numbers: never."""
    return False


def numel(input) -> _b.int:
    """The number of elements."""
    return input.numel()


def is_nonzero(input) -> _b.bool:
    """Whether the only element is not 0."""
    return _b.bool(input)


def isposinf(input) -> Tensor:
    """Which elements are the positive infinity."""
    return input == float("inf")


def isneginf(input) -> Tensor:
    """Which elements are the negative infinity."""
    return input == -float("inf")


def is_same_size(input, other) -> _b.bool:
    """Whether two tensors have the same shape."""
    return input.shape == other.shape


def promote_types(type1, type2) -> _core.dtype:
    """The dtype of an op of these dtypes."""
    return _core._promote(type1, type2)


def get_default_dtype() -> _core.dtype:
    """The dtype of new floats."""
    return _core.float32


def set_default_dtype(d) -> None:
    """Only float32 can be the default."""
    if d != _core.float32:
        raise _core.UnsupportedError("the default dtype is float32: give dtype= where a tensor is created")


def initial_seed() -> _b.int:
    """The seed of random functions."""
    return _core.get_rng_state()[0]


def seed() -> _b.int:
    """Sets a new seed of all random functions, and returns it."""
    import secrets

    n = secrets.randbits(63)
    _core.manual_seed(n)
    return n
