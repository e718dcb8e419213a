"""Methods of Tensor with PyTorch's meaning that are not one op. Importing this module adds them to the type.

gradus.torch has the same functions, with the tensor as the first argument.
"""
from __future__ import annotations

from gradus import _core
from gradus._core import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_bool = bool
_max, _min = max, min  # Python's; below are PyTorch's


def _either(function) -> Callable[..., Any]:
    """Takes axis and keepdims for dim and keepdim, too."""

    def named(*args, **names) -> Any:
        if names:
            for theirs, ours in (("axis", "dim"), ("keepdims", "keepdim"), ("x", "input"), ("self", "input")):
                if theirs in names:
                    names[ours] = names.pop(theirs)
        return function(*args, **names)

    named.__name__ = named.__qualname__ = function.__name__
    named.__doc__, named.__wrapped__ = function.__doc__, function  # without functools, which takes time to import
    return named


def _axes(dim) -> Any:
    """PyTorch takes an empty list of axes for all of them."""
    return None if isinstance(dim, (tuple, list)) and not dim else dim


def _write(input, value) -> Tensor:
    input[...] = value
    return input


# --- arithmetic -----------------------------------------------------------------------------------


def add(input, other, *, alpha=1) -> Tensor:
    """input + alpha * other."""
    return _core.add(input, other if alpha == 1 else _core.mul(other, alpha))


def sub(input, other, *, alpha=1) -> Tensor:
    """input - alpha * other."""
    return _core.sub(input, other if alpha == 1 else _core.mul(other, alpha))


def rsub(input, other, *, alpha=1) -> Tensor:
    """other - alpha * input."""
    return _core.sub(other, input if alpha == 1 else _core.mul(input, alpha))


def add_(input, other, *, alpha=1) -> Tensor:
    """Adds alpha * other in place."""
    return _core.add_(input, other if alpha == 1 else _core.mul(other, alpha))


def sub_(input, other, *, alpha=1) -> Tensor:
    """Subtracts alpha * other in place."""
    return _core.sub_(input, other if alpha == 1 else _core.mul(other, alpha))


def div(input, other, *, rounding_mode=None) -> Tensor:
    """input / other, rounded towards zero ('trunc') or down ('floor') if rounding_mode says so."""
    if rounding_mode is None:
        return _core.div(input, other)
    if rounding_mode not in ("trunc", "floor"):
        raise _core.ArgumentError(f"rounding_mode is {rounding_mode!r}; it is None, 'trunc' or 'floor'")
    return (_core.trunc_divide if rounding_mode == "trunc" else _core.floor_divide)(input, other)


def div_(input, other, *, rounding_mode=None) -> Tensor:
    """div in place."""
    if rounding_mode is None:
        return _core.div_(input, other)
    return _write(input, div(input, other, rounding_mode=rounding_mode))


def clamp(input, min=None, max=None) -> Tensor:
    """The elements, but at least min and at most max: numbers or tensors."""
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        bounds = [b if b is None or isinstance(b, Tensor) else _core.tensor(b, dtype=input.dtype, device=input.device)
                  for b in (min, max)]
        return _core.clamp_tensor(input, *bounds)
    if min is None and max is None:
        raise _core.ArgumentError("clamp needs min or max")
    return _core.clamp(input, min, max)


def clamp_(input, min=None, max=None) -> Tensor:
    """clamp in place."""
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        return _write(input, clamp(input, min, max))
    return _core.clamp_(input, min, max)


def clamp_min(input, min) -> Tensor:
    """The elements, but at least min."""
    return clamp(input, min)


def clamp_max(input, max) -> Tensor:
    """The elements, but at most max."""
    return clamp(input, None, max)


def addcmul(input, tensor1, tensor2, *, value=1) -> Tensor:
    """input + value * tensor1 * tensor2."""
    return add(input, tensor1 * tensor2, alpha=value)


def addcdiv(input, tensor1, tensor2, *, value=1) -> Tensor:
    """input + value * tensor1 / tensor2."""
    return add(input, tensor1 / tensor2, alpha=value)


def nan_to_num(input, nan=0.0, posinf=None, neginf=None) -> Tensor:
    """Numbers in place of NaN and infinities; None: the largest and smallest ones of the dtype."""
    if not input.is_floating_point():
        return input.clone()
    from gradus._functions import finfo

    limits = finfo(input.dtype)
    y = _core.where(_core.isnan(input), nan, input)
    y = _core.where(y == float("inf"), limits.max if posinf is None else posinf, y)
    return _core.where(y == -float("inf"), limits.min if neginf is None else neginf, y)


def round(input, *, decimals=0) -> Tensor:
    """Rounded to a number of decimals; ties to even."""
    return _core.round(input * 10.0**decimals) / 10.0**decimals if decimals else _core.round(input)


def frac(input) -> Tensor:
    """The part after the decimal point."""
    return input - _core.trunc(input)


def logit(input, eps=None) -> Tensor:
    """log(x / (1 - x)), with x between eps and 1 - eps."""
    x = input if eps is None else _core.clamp(input, eps, 1 - eps)
    return _core.log(x / (1 - x))


def xlogy(input, other) -> Tensor:
    """input * log(other), and 0 where input is 0."""
    return _core.where(input == 0, _core.where(_core.isnan(other), other, 0.0), input * _core.log(other))


def fmax(input, other) -> Tensor:
    """The larger elements; a number beside a NaN counts."""
    return _core.where(_core.isnan(input), other, _core.where(_core.isnan(other), input, _core.maximum(input, other)))


def fmin(input, other) -> Tensor:
    """The smaller elements; a number beside a NaN counts."""
    return _core.where(_core.isnan(input), other, _core.where(_core.isnan(other), input, _core.minimum(input, other)))


def heaviside(input, values) -> Tensor:
    """0 for negative numbers, 1 for positive ones, values for 0."""
    return _core.where(input == 0, values, (input > 0).to(input.dtype))


def float_power(input, exponent) -> Tensor:
    """The power in float64."""
    return _core.pow(input.to(_core.float64), exponent.to(_core.float64) if isinstance(exponent, Tensor) else exponent)


def logaddexp2(input, other) -> Tensor:
    """log2(2**input + 2**other)."""
    ln2 = 0.6931471805599453
    return _core.logaddexp(input * ln2, other * ln2) / ln2


def deg2rad(input) -> Tensor:
    """Angles in radians."""
    return input * 0.017453292519943295


def rad2deg(input) -> Tensor:
    """Angles in degrees."""
    return input * 57.29577951308232


def hypot(input, other) -> Tensor:
    """sqrt(input**2 + other**2), without overflow."""
    a, b = _core.abs(input), _core.abs(other)
    large, small = _core.maximum(a, b), _core.minimum(a, b)
    ratio = small / _core.where(large == 0, 1, large)
    y = large * _core.sqrt(1 + ratio * ratio)
    return _core.where(_core.isinf(a) | _core.isinf(b), float("inf"), y)


# --- products -------------------------------------------------------------------------------------


def _of_rank(what, rank, *tensors) -> None:
    for t in tensors:
        if t.ndim != rank:
            raise _core.ShapeError(f"{what} is for tensors of {rank} dimensions, not for the shape {t.shape}")


def mm(input, mat2) -> Tensor:
    """The product of two matrices."""
    _of_rank("mm", 2, input, mat2)
    return _core.matmul(input, mat2)


def bmm(input, mat2) -> Tensor:
    """The products of two batches of matrices."""
    _of_rank("bmm", 3, input, mat2)
    return _core.matmul(input, mat2)


def mv(input, vec) -> Tensor:
    """The product of a matrix and a vector."""
    _of_rank("mv", 2, input)
    _of_rank("mv", 1, vec)
    return _core.matmul(input, vec)


def _plus_product(product, input, beta, alpha) -> Tensor:
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (input if beta == 1 else input * beta)


def addmm(input, mat1, mat2, *, beta=1, alpha=1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
    return _plus_product(mm(mat1, mat2), input, beta, alpha)


def addmv(input, mat, vec, *, beta=1, alpha=1) -> Tensor:
    """beta * input + alpha * (mat @ vec)."""
    return _plus_product(mv(mat, vec), input, beta, alpha)


def addr(input, vec1, vec2, *, beta=1, alpha=1) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2)."""
    return _plus_product(_core.outer(vec1, vec2), input, beta, alpha)


def baddbmm(input, batch1, batch2, *, beta=1, alpha=1) -> Tensor:
    """beta * input + alpha * (batch1 @ batch2)."""
    return _plus_product(bmm(batch1, batch2), input, beta, alpha)


def addbmm(input, batch1, batch2, *, beta=1, alpha=1) -> Tensor:
    """beta * input + alpha * the sum of all products of the batch."""
    return _plus_product(_core.sum(bmm(batch1, batch2), 0), input, beta, alpha)


def inner(input, other) -> Tensor:
    """The scalar products of the last axes."""
    return input * other if input.ndim == 0 or other.ndim == 0 else tensordot(input, other, ([-1], [-1]))


def tensordot(a, b, dims=2) -> Tensor:
    """Products summed over pairs of axes."""
    from gradus._functions import tensordot as standard

    return standard(a, b, axes=dims)


def cross(input, other, dim=None) -> Tensor:
    """The vector product; dim None: along the first axis of size 3."""
    from gradus._functions import cross as standard

    if dim is None:
        dim = next((i for i, n in enumerate(input.shape) if n == 3), -1)
    return standard(input, other, axis=dim)


def kron(input, other) -> Tensor:
    """The Kronecker product."""
    rank = _max(input.ndim, other.ndim)
    a, b = ((1,) * (rank - t.ndim) + t.shape for t in (input, other))
    left, right = [], []
    for m, n in zip(a, b):
        left += [m, 1]
        right += [1, n]
    return (input.reshape(left) * other.reshape(right)).reshape([m * n for m, n in zip(a, b)])


# --- reductions -----------------------------------------------------------------------------------


@_either
def max(input, dim=None, keepdim=False) -> Any:
    """The largest element; with dim (values, indices) along that axis; with a tensor the larger elements."""
    if dim is None:
        return _core.max(input)
    if isinstance(dim, Tensor):
        return _core.maximum(input, dim)
    return _core.max_with_index(input, dim, keepdim)


@_either
def min(input, dim=None, keepdim=False) -> Any:
    """The smallest element; with dim (values, indices) along that axis; with a tensor the smaller elements."""
    if dim is None:
        return _core.min(input)
    if isinstance(dim, Tensor):
        return _core.minimum(input, dim)
    return _core.min_with_index(input, dim, keepdim)


@_either
def amax(input, dim=(), keepdim=False) -> Tensor:
    """The largest elements along axes."""
    return _core.max(input, _axes(dim), keepdim)


@_either
def amin(input, dim=(), keepdim=False) -> Tensor:
    """The smallest elements along axes."""
    return _core.min(input, _axes(dim), keepdim)


@_either
def aminmax(input, *, dim=None, keepdim=False) -> Any:
    """The smallest and the largest elements."""
    import collections

    return collections.namedtuple("aminmax", "min max")(_core.min(input, dim, keepdim), _core.max(input, dim, keepdim))


def _spread(op, input, dim, unbiased, keepdim, correction) -> Tensor:
    if isinstance(dim, _bool):  # x.std(False)
        dim, unbiased = None, dim
    if correction is None:
        correction = 0 if unbiased is False else 1
    return op(input, _axes(dim), correction=correction, keepdim=keepdim)


@_either
def std(input, dim=None, unbiased=None, keepdim=False, *, correction=None) -> Tensor:
    """The standard deviation, of n - correction elements; the correction is 1."""
    return _spread(_core.std, input, dim, unbiased, keepdim, correction)


@_either
def var(input, dim=None, unbiased=None, keepdim=False, *, correction=None) -> Tensor:
    """The variance, of n - correction elements; the correction is 1."""
    return _spread(_core.var, input, dim, unbiased, keepdim, correction)


@_either
def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean."""
    mean_of = None if isinstance(dim, _bool) else _axes(dim)
    return std(input, dim, unbiased, keepdim, correction=correction), _core.mean(input, mean_of, keepdim)


@_either
def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None) -> tuple[Tensor, Tensor]:
    """Variance and mean."""
    mean_of = None if isinstance(dim, _bool) else _axes(dim)
    return var(input, dim, unbiased, keepdim, correction=correction), _core.mean(input, mean_of, keepdim)


@_either
def norm(input, p="fro", dim=None, keepdim=False, dtype=None) -> Tensor:
    """The p-norm of all elements or along axes."""
    x = input if dtype is None else input.to(dtype)
    if p == "nuc":
        raise _core.UnsupportedError("the nuclear norm needs singular values, which are not there yet")
    return _core.norm(x, 2 if p in ("fro", None) else p, _axes(dim), keepdim)


def dist(input, other, p=2) -> Tensor:
    """The p-norm of the difference."""
    return _core.norm(input - other, p)


@_either
def nansum(input, dim=None, keepdim=False, *, dtype=None) -> Tensor:
    """The sum of all elements that are not NaN."""
    return _core.sum(_core.where(_core.isnan(input), 0, input), _axes(dim), keepdim, dtype=dtype)


@_either
def nanmean(input, dim=None, keepdim=False, *, dtype=None) -> Tensor:
    """The mean of all elements that are not NaN."""
    count = _core.sum(_core.logical_not(_core.isnan(input)), _axes(dim), keepdim)
    return nansum(input, dim, keepdim, dtype=dtype) / count


@_either
def count_nonzero(input, dim=None) -> Tensor:
    """How many elements are not 0."""
    return _core.sum(input != 0, dim)


def _values_and_indices(values, indices) -> Any:
    import collections

    return collections.namedtuple("values_and_indices", "values indices")(values, indices)


@_either
def kthvalue(input, k, dim=-1, keepdim=False) -> Any:
    """The k-th smallest elements along an axis, and their indices."""
    s = _core.sort(input, dim)
    values, indices = (_core.narrow(t, dim, k - 1, 1) for t in s)
    return _values_and_indices(*((values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))))


@_either
def median(input, dim=None, keepdim=False) -> Any:
    """The median: of two in the middle the smaller one. With dim (values, indices) along that axis."""
    if dim is None:
        return kthvalue(input.reshape(-1), (input.numel() + 1) // 2, 0).values
    return kthvalue(input, (input.shape[dim] + 1) // 2, dim, keepdim)


@_either
def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear") -> Tensor:
    """The q-quantiles. Between two elements interpolation is 'linear', 'lower', 'higher', 'nearest' or 'midpoint'."""
    ways = {"linear": lambda f: f, "lower": lambda f: 0, "higher": lambda f: float(f > 0),
            "nearest": lambda f: float(f > 0.5), "midpoint": lambda f: (f > 0) / 2}
    if interpolation not in ways:
        raise _core.ArgumentError(f"interpolation is {interpolation!r}; it is one of {', '.join(ways)}")
    x = input.reshape(-1) if dim is None else input.movedim(dim, -1)
    s = _core.sort(x, -1)[0]
    many = isinstance(q, Tensor) and q.ndim == 1
    parts = []
    for fraction in q.tolist() if many else [float(q)]:
        place = fraction * (s.shape[-1] - 1)
        low = int(place)
        a, b = s[..., low], s[..., _min(low + 1, s.shape[-1] - 1)]
        y = a + (b - a) * ways[interpolation](place - low)
        parts.append(y.unsqueeze(dim) if keepdim and dim is not None else y)
    return _core.stack(parts, 0) if many else parts[0]


def equal(input, other) -> _bool:
    """Whether two tensors have the same shape and elements."""
    return input.shape == other.shape and _bool(_core.all(input == other))


def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False) -> Tensor:
    """Where |input - other| is at most atol + rtol * |other|."""
    near = (input == other) | (_core.isfinite(input) & _core.isfinite(other)
                               & (_core.abs(input - other) <= atol + rtol * _core.abs(other)))
    return near | (_core.isnan(input) & _core.isnan(other)) if equal_nan else near


def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False) -> _bool:
    """Whether all elements are close."""
    return _bool(_core.all(isclose(input, other, rtol, atol, equal_nan)))


def softmax(input, dim=None, _stacklevel=3, dtype=None, *, axis=None) -> Tensor:
    """exp(x) divided by its sum along an axis."""
    dim = axis if dim is None else dim
    return _core.softmax(input if dtype is None else input.to(dtype), _softmax_axis(input, dim))


def log_softmax(input, dim=None, _stacklevel=3, dtype=None, *, axis=None) -> Tensor:
    """The logarithm of softmax."""
    dim = axis if dim is None else dim
    return _core.log_softmax(input if dtype is None else input.to(dtype), _softmax_axis(input, dim))


def _softmax_axis(input, dim) -> int:
    if dim is None:
        return 0 if input.ndim in (0, 1, 3) else 1
    return dim


# --- places ---------------------------------------------------------------------------------------


def nonzero(input, *, as_tuple=False) -> Any:
    """The indices of all elements that are not 0: a row for each, or a tensor for each axis."""
    rows = _core.nonzero(input)
    return _core.unbind(rows, 1) if as_tuple else rows


def take(input, index) -> Tensor:
    """Elements of the tensor in row-major order."""
    return input.reshape(-1)[index]


@_either
def take_along_dim(input, indices, dim=None) -> Tensor:
    """Elements along an axis; None: of all in row-major order."""
    if dim is None:
        return _core.gather(input.reshape(-1), 0, indices.reshape(-1))
    return _core.gather(input, dim, indices)


def masked_fill(input, mask, value) -> Tensor:
    """A number in place of the elements where the mask is true."""
    if isinstance(value, Tensor):
        return _core.where(mask, value.to(input.dtype), input)
    return _core.masked_fill(input, mask, value)


def masked_fill_(input, mask, value) -> Tensor:
    """masked_fill in place."""
    if isinstance(value, Tensor):
        return _write(input, masked_fill(input, mask, value))
    return _core.masked_fill_(input, mask, value)


def _source(input, index, src) -> Tensor:
    """A number as the source of a scatter."""
    if isinstance(src, Tensor):
        return src
    return _core.full(index.shape, src, dtype=input.dtype, device=input.device)


@_either
def scatter(input, dim, index, src=None, *, value=None, reduce=None) -> Tensor:
    """src or a number written where index says."""
    src = _source(input, index, value if src is None else src)
    if reduce is None:
        return _core.scatter(input, dim, index, src)
    if reduce not in ("add", "multiply"):
        raise _core.ArgumentError(f"reduce is {reduce!r}; it is 'add' or 'multiply'")
    return (_core.scatter_add if reduce == "add" else _core.scatter_mul)(input, dim, index, src)


@_either
def index_fill(input, dim, index, value) -> Tensor:
    """A number in the slices that index selects."""
    shape = [1] * input.ndim
    shape[dim] = -1
    return scatter(input, dim, _core.expand(index.reshape(shape), _with(input.shape, dim, index.numel())), value)


@_either
def index_copy(input, dim, index, source) -> Tensor:
    """source in the slices that index selects."""
    shape = [1] * input.ndim
    shape[dim] = -1
    return _core.scatter(input, dim, _core.expand(index.reshape(shape), source.shape), source)


def _with(shape, axis, size) -> list[int]:
    shape = list(shape)
    shape[axis] = size
    return shape


def index_put(input, indices, values, accumulate=False) -> Tensor:
    """A copy in which the elements at indices are values, or their sums."""
    at = tuple(slice(None) if i is None else i for i in indices)
    if not accumulate:
        y = input.clone()
        y[at] = values
        return y
    places = _core.arange(0, input.numel(), dtype=_core.int64, device=input.device).reshape(input.shape)[at]
    values = _core.expand(_core.as_tensor(values, dtype=input.dtype, device=input.device), places.shape)
    return _core.scatter_add(input.reshape(-1), 0, places.reshape(-1), values.reshape(-1)).reshape(input.shape)


def index_put_(input, indices, values, accumulate=False) -> Tensor:
    """Writes values at indices, or adds them."""
    if accumulate:
        input[...] = index_put(input.clone(), indices, values, True)
    else:
        input[tuple(slice(None) if i is None else i for i in indices)] = values
    return input


def msort(input) -> Tensor:
    """Sorted along the first axis."""
    return _core.sort(input, 0)[0]


def histc(input, bins=100, min=0, max=0) -> Tensor:
    """How many elements are in each of bins intervals between min and max."""
    x = input.reshape(-1)
    low, high = (min, max) if min != max else (float(_core.min(x)), float(_core.max(x)))
    if low == high:
        low, high = low - 1, high + 1
    inside = _core.masked_select(x, (x >= low) & (x <= high))
    place = _core.clamp(_core.floor((inside - low) * (bins / (high - low))), 0, bins - 1).to(_core.int64)
    counts = _core.zeros(bins, dtype=input.dtype, device=input.device)
    return _core.scatter_add(counts, 0, place, _core.ones_like(inside))


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None) -> Any:
    """The different elements in order; with their places in them, and how many there are of each, if asked for."""
    if dim is not None:
        raise _core.UnsupportedError("unique along an axis is not there yet")
    flat = input.detach().reshape(-1)
    s = _core.sort(flat, 0)
    n = flat.numel()
    first = _core.ones(n, dtype=_core.bool, device=flat.device)
    if n > 1:
        first[1:] = s[0][1:] != s[0][:-1]
    values = _core.masked_select(s[0], first)
    results = [values]
    number = _core.cumsum(first, 0, dtype=_core.int64) - 1
    if return_inverse:
        results.append(_core.scatter(number, 0, s[1], number).reshape(input.shape))
    if return_counts:
        counts = _core.zeros(values.shape, dtype=_core.int64, device=flat.device)
        results.append(_core.scatter_add(counts, 0, number, _core.ones_like(number)))
    return results[0] if len(results) == 1 else tuple(results)


def bincount(input, weights=None, minlength=0) -> Tensor:
    """How often each number occurs, or the sums of its weights."""
    size = _max(minlength, int(_core.max(input)) + 1 if input.numel() else 0)
    dtype = _core.int64 if weights is None else weights.dtype
    one = _core.ones(input.shape, dtype=dtype, device=input.device) if weights is None else weights
    return _core.scatter_add(_core.zeros(size, dtype=dtype, device=input.device), 0, input.long(), one)


# --- shapes ---------------------------------------------------------------------------------------


def unfold(input, dimension, size, step) -> Tensor:
    """Windows along an axis, which become a last axis."""
    n, rank = input.shape[dimension], input.ndim
    if size > n or step < 1:
        raise _core.ShapeError(f"unfold takes windows of {size} elements, {step} apart, from an axis of {n}")
    dimension %= rank
    starts = _core.arange(0, n - size + 1, step=step, dtype=_core.int64, device=input.device)
    at = starts.unsqueeze(1) + _core.arange(0, size, dtype=_core.int64, device=input.device)
    y = _core.index_select(input, dimension, at.reshape(-1))
    y = y.reshape(y.shape[:dimension] + at.shape + y.shape[dimension + 1:])
    return y.movedim(dimension + 1, -1)


def reshape_as(input, other) -> Tensor:
    """The elements in the shape of another tensor."""
    return input.reshape(other.shape)


def ravel(input) -> Tensor:
    """All elements in one axis."""
    return input.reshape(-1)


def broadcast_to(input, size) -> Tensor:
    """The tensor broadcast to a shape."""
    return _core.expand(input, size)


def moveaxis(input, source, destination) -> Tensor:
    """Axes moved to other places."""
    return _core.movedim(input, source, destination)


@_either
def repeat_interleave(input, repeats=None, dim=None, *, output_size=None) -> Tensor:
    """Each element repeated, along an axis or of all in row-major order; repeats can have a count for each."""
    if repeats is None:  # the numbers 0, 0, 1, ... of these counts
        input, repeats = _core.arange(0, input.numel(), dtype=_core.int64, device=input.device), input
    if dim is None:
        input, dim = input.reshape(-1), 0
    if isinstance(repeats, Tensor) and repeats.numel() == 1:
        repeats = int(repeats)
    n = input.shape[dim]
    if isinstance(repeats, int):
        at = _core.arange(0, n, dtype=_core.int64, device=input.device).unsqueeze(1).expand(n, repeats).reshape(-1)
    else:
        counts = repeats.tolist() if isinstance(repeats, Tensor) else list(repeats)
        if len(counts) != n:
            raise _core.ShapeError(f"repeat_interleave has {len(counts)} counts for an axis of {n}")
        at = _core.tensor([i for i, count in enumerate(counts) for _ in range(count)], dtype=_core.int64,
                          device=input.device)
    return _core.index_select(input, dim, at)


_MOST_PARTS = 1 << 20  # of an axis that has fewer elements


def _split_evenly(input, name, rank, dim, sections) -> tuple[Tensor, ...]:
    if input.ndim < rank:
        raise _core.ShapeError(f"{name} needs {rank} dimension{'s' if rank > 1 else ''} or more, not {input.ndim}")
    if isinstance(sections, int) and (sections < 1 or input.shape[dim] % sections):
        raise _core.ShapeError(f"{name}: axis {dim} of size {input.shape[dim]} has no {sections} equal parts")
    return tensor_split(input, sections, dim)


@_either
def tensor_split(input, indices_or_sections, dim=0) -> tuple[Tensor, ...]:
    """Parts of nearly equal size, or parts between indices."""
    n = input.shape[dim]
    if isinstance(indices_or_sections, int):
        k = indices_or_sections
        if not 0 < k <= _max(n, _MOST_PARTS):
            raise ValueError(f"the number of sections is {k}; expected 1 to {_max(n, _MOST_PARTS)}")
        ends = [n // k * (i + 1) + _min(i + 1, n % k) for i in range(k)]
    else:
        ends = list(indices_or_sections) + [n]
    parts, start = [], 0
    for end in ends:
        end = _min(_max(end + n if end < 0 else end, start), n)
        parts.append(_core.narrow(input, dim, start, end - start))
        start = end
    return tuple(parts)


def hsplit(input, indices_or_sections) -> tuple[Tensor, ...]:
    """Parts along the second axis."""
    return _split_evenly(input, "hsplit", 1, 0 if input.ndim == 1 else 1, indices_or_sections)


def vsplit(input, indices_or_sections) -> tuple[Tensor, ...]:
    """Parts along the first axis."""
    return _split_evenly(input, "vsplit", 2, 0, indices_or_sections)


def fliplr(input) -> Tensor:
    """The second axis reversed."""
    return _core.flip(input, [1])


def dsplit(input, indices_or_sections) -> tuple[Tensor, ...]:
    """Parts along the third axis."""
    return _split_evenly(input, "dsplit", 3, 2, indices_or_sections)


def split_with_sizes(input, split_sizes, dim=0) -> tuple[Tensor, ...]:
    """Parts of given sizes."""
    return _core.split(input, split_sizes, dim)


def select_scatter(input, src, dim, index) -> Tensor:
    """The tensor with src in one place of an axis."""
    n = input.shape[dim]
    start = index + n if index < 0 else index
    return _core.slice_scatter(input, src.unsqueeze(dim), dim, start, start + 1)


def diagflat(input, offset=0) -> Tensor:
    """The matrix with all elements on a diagonal."""
    return diag_embed(input.reshape(-1), offset)


def matrix_power(input, n) -> Tensor:
    """The product of n equal matrices."""
    from gradus.linalg import matrix_power as standard

    return standard(input, n)


def flipud(input) -> Tensor:
    """The first axis reversed."""
    return _core.flip(input, [0])


def rot90(input, k=1, dims=(0, 1)) -> Tensor:
    """Two axes rotated by k quarter turns."""
    a, b = dims
    k %= 4
    if k == 2:
        return _core.flip(input, [a, b])
    if k == 0:
        return input.clone()
    return _core.flip(_core.transpose(input, a, b), [a if k == 1 else b])


def diag(input, diagonal=0) -> Tensor:
    """The matrix with these elements on a diagonal, or the diagonal of a matrix."""
    return diag_embed(input, diagonal) if input.ndim == 1 else _core.diagonal(input, diagonal)


def diag_embed(input, offset=0, dim1=-2, dim2=-1) -> Tensor:
    """Matrices whose diagonals are the last axis."""
    n = input.shape[-1] + (offset if offset > 0 else -offset)
    rows = _core.arange(0, n, dtype=_core.int64, device=input.device)
    on = rows.unsqueeze(1) + offset == rows
    if offset >= 0:  # row i has element i
        x = _core.pad(input.unsqueeze(-1), [0, 0, 0, n - input.shape[-1]])
    else:  # column i has element i
        x = _core.pad(input.unsqueeze(-2), [0, n - input.shape[-1]])
    y = _core.where(on, x, _core.zeros((), dtype=input.dtype, device=input.device))
    return y if (dim1, dim2) == (-2, -1) else _core.movedim(y, [-2, -1], [dim1, dim2])


@_either
def diff(input, n=1, dim=-1, prepend=None, append=None) -> Tensor:
    """The differences of neighbours along an axis, n times."""
    from gradus._functions import diff as standard

    return standard(input, n=n, axis=dim, prepend=prepend, append=append)


def trace(input) -> Tensor:
    """The sum of the diagonal of a matrix."""
    return _core.sum(_core.diagonal(input))


def where(input, condition, other) -> Tensor:
    """The elements where the condition is true, and those of other elsewhere."""
    return _core.where(condition, input, other)


# --- writing --------------------------------------------------------------------------------------


def _in_place(name, function) -> Callable[..., Tensor]:
    def written(self, *args, **names) -> Tensor:
        return _write(self, function(self, *args, **names))

    written.__name__ = name
    written.__qualname__ = "Tensor." + name
    written.__doc__ = f"{name[:-1]}, written into the tensor."
    return written


def _random(values) -> Callable[..., Tensor]:
    """A method that writes random numbers; the tape does not record it."""

    def method(self, *args, **names) -> Tensor:
        from gradus._modes import no_grad

        with no_grad():
            self[...] = values(self, *args, **names)
        return self

    method.__name__, method.__doc__ = values.__name__, values.__doc__
    return method


@_random
def normal_(self, mean=0.0, std=1.0) -> Tensor:
    """Writes random numbers from a normal distribution."""
    return _core.normal(mean, std, self.shape, dtype=self.dtype, device=self.device)


@_random
def uniform_(self, a=0.0, b=1.0, **names) -> Tensor:
    """Writes random numbers between two bounds."""
    low, high = names.get("from", a), names.get("to", b)
    return _core.uniform(self.shape, low, high, dtype=self.dtype, device=self.device)


@_random
def bernoulli_(self, p=0.5) -> Tensor:
    """Writes 1 with a probability, otherwise 0."""
    p = p if isinstance(p, Tensor) else _core.full(self.shape, float(p), device=self.device)
    return _core.bernoulli(p)


@_random
def random_(self, low=0, high=None) -> Tensor:
    """Writes random integers from low to high - 1."""
    if high is None:
        low, high = (0, low) if low else (0, 2**24 if self.dtype.is_floating_point else 127)
    return _core.randint(low, high, self.shape, device=self.device)


@_random
def exponential_(self, lambd=1.0) -> Tensor:
    """Writes random numbers from an exponential distribution."""
    u = _core.rand(self.shape, dtype=self.dtype, device=self.device)
    return -_core.log1p(-u) / lambd


_data_type: Any = None


def _make_data_type() -> Any:
    """The type of x.data: the tape does not record what is written to it."""

    class Data(Tensor):
        __slots__ = ()

    def without_tape(name) -> Callable[..., Any]:
        method = getattr(Tensor, name)

        def written(self, *args, **names) -> Any:
            before = _core._grad_mode(False)
            try:
                return method(self, *args, **names)
            finally:
                _core._grad_mode_end(before)

        return written

    for name in dir(Tensor):
        writes = name.endswith("_") and not name.startswith("_") and name != "requires_grad_"
        if writes or name in ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__"):
            setattr(Data, name, without_tape(name))
    Data.__name__ = Data.__qualname__ = "Tensor"
    return Data


def _get_data(self) -> Tensor:
    global _data_type
    _data_type = _data_type or _make_data_type()
    return self.detach().as_subclass(_data_type)


# Other names of methods above, and ops whose form in place is written here (cmake/method_types.py reads both).
_ALSO = {"subtract": "sub", "subtract_": "sub_", "divide": "div", "clip": "clamp", "clip_": "clamp_",
         "argwhere": "nonzero"}
_WRITTEN = (
    "clamp_min", "clamp_max", "addcmul", "addcdiv", "addmm", "baddbmm", "scatter", "index_fill", "index_copy",
    "nan_to_num", "logit", "xlogy", "fmod", "remainder", "floor_divide", "floor", "ceil", "round", "trunc", "sign",
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "erf", "exp2", "expm1", "log2", "log10", "log1p",
    "lerp", "scatter_add", "scatter_reduce", "index_add", "masked_scatter", "tril", "triu", "cumsum", "cumprod",
    "logical_not", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
    "bitwise_not", "eq", "ne", "lt", "le", "gt", "ge", "frac", "atan2", "acosh", "asinh", "atanh", "erfc", "sinc",
    "hypot", "deg2rad", "rad2deg",
)


def _add() -> None:
    for name, value in list(globals().items()):
        if not name.startswith("_") and getattr(value, "__module__", None) == __name__:
            setattr(Tensor, name, value)
    for name, of in _ALSO.items():
        setattr(Tensor, name, globals()[of])
    for name in _WRITTEN:
        setattr(Tensor, name + "_", _in_place(name + "_", getattr(Tensor, name)))
    Tensor.H = Tensor.mH = Tensor.mT
    Tensor.data = property(_get_data, Tensor.data.fset, None, "The same values without their history.")


_add()
