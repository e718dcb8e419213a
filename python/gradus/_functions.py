"""Functions of the Python Array API standard that are compositions of ops, and its data about dtypes."""
from __future__ import annotations

import builtins as _b
import types as _types

from gradus import _core
from gradus._core import Tensor

__all__ = [
    "__array_namespace_info__", "arange", "asarray", "astype", "broadcast_arrays", "broadcast_shapes", "broadcast_to",
    "can_cast", "clip", "concat", "count_nonzero", "cross", "cumulative_prod", "cumulative_sum", "diff", "empty_like",
    "expand_dims", "eye", "finfo", "flip", "from_numpy", "full", "grad", "iinfo", "is_tensor", "isdtype", "isin", "linspace",
    "matrix_transpose", "meshgrid", "moveaxis", "nonzero", "positive", "repeat", "reshape", "result_type",
    "roll", "sort", "squeeze", "std", "take", "take_along_axis", "tensordot", "trace", "unstack", "var", "vecdot",
]


# --- creation -------------------------------------------------------------------------------------


def arange(start, /, stop=None, step=1, *, dtype=None, device=None, requires_grad=False) -> Tensor:
    """Numbers from start to stop in steps; of ints if all three are, else of floats."""
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise _core.ArgumentError("the step of arange is 0")
    if dtype is None:
        whole = _b.all(isinstance(n, int) or hasattr(n, "__index__") for n in (start, stop, step))
        dtype = _core.int64 if whole else _core.float32
    if (stop - start) / step <= 0:
        return _core.empty(0, dtype=dtype, device=device, requires_grad=requires_grad)
    return _core.arange(start, stop, step=step, dtype=dtype, device=device, requires_grad=requires_grad)


def asarray(obj, /, *, dtype=None, device=None, copy=None) -> Tensor:
    """The data as a tensor; memory is shared if the dtype and the layout allow it and copy is not True."""
    return _core.as_tensor(obj, dtype=dtype, device=device, copy=copy)


def from_numpy(array) -> Tensor:
    """A tensor that shares the memory of a NumPy array."""
    return _core.as_tensor(array)


def is_tensor(obj) -> _b.bool:
    """Whether an object is a Tensor."""
    return isinstance(obj, Tensor)


def empty_like(x, /, *, dtype=None, device=None, requires_grad=False) -> Tensor:
    """A tensor like x whose elements are not set."""
    return _core.empty(x.shape, dtype=dtype or x.dtype, device=device or x.device, requires_grad=requires_grad)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None, requires_grad=False) -> Tensor:
    """Ones on a diagonal, zeros elsewhere."""
    n_cols = n_rows if n_cols is None else n_cols
    dtype = _core.float32 if dtype is None else dtype
    rows = _core.arange(0, n_rows, device=device)
    columns = _core.arange(0, n_cols, device=device)
    y = _core.cast(rows.unsqueeze(1) + k == columns, dtype)
    return y.requires_grad_() if requires_grad else y


def full(shape, fill_value, *, dtype=None, device=None, requires_grad=False) -> Tensor:
    """A tensor of one value; its dtype follows from the value if none is given."""
    if dtype is None:
        dtype = _core.bool if isinstance(fill_value, _b.bool) else (
            _core.int64 if isinstance(fill_value, int) else _core.float32)
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    return _core.full(shape, fill_value, dtype=dtype, device=device, requires_grad=requires_grad)


def meshgrid(*arrays, indexing="xy") -> list[Tensor]:
    """Coordinate matrices of vectors: of the standard, so that the first two axes are exchanged ('xy')."""
    if indexing not in ("xy", "ij"):
        raise _core.ArgumentError(f"indexing is {indexing!r}; it is 'xy' or 'ij'")
    if len(arrays) == 1 and isinstance(arrays[0], (list, tuple)):
        arrays = tuple(arrays[0])
    n = len(arrays)
    grids = []
    for i, a in enumerate(arrays):
        shape = [1] * n
        shape[i] = a.numel()
        grids.append(a.reshape(shape))
    grids = list(broadcast_arrays(*grids)) if n > 1 else grids
    if indexing == "xy" and n > 1:
        grids = [g.transpose(0, 1) for g in grids]
    return grids


def linspace(start, stop, /, num=None, *, steps=None, dtype=None, device=None, endpoint=True, requires_grad=False) -> Tensor:
    """Evenly spaced numbers from start to stop; without stop itself if endpoint is False."""
    n = steps if num is None else num
    if n is None:
        raise TypeError("linspace() needs the argument 'num'")
    if not endpoint and n > 0:
        stop = start + (stop - start) * (n - 1) / n
    return _core.linspace(start, stop, n, dtype=dtype or _core.float32, device=device, requires_grad=requires_grad)


# --- dtypes ---------------------------------------------------------------------------------------

_ints = {"int8": (8, True), "int32": (32, True), "int64": (64, True), "uint8": (8, False)}
_floats = {  # bits, eps, largest, smallest normal number, digits
    "float16": (16, 2.0**-10, 65504.0, 2.0**-14, 3),
    "bfloat16": (16, 2.0**-7, (2 - 2.0**-7) * 2.0**127, 2.0**-126, 2),
    "float32": (32, 2.0**-23, (2 - 2.0**-23) * 2.0**127, 2.0**-126, 6),
    "float64": (64, 2.0**-52, (2 - 2.0**-52) * 2.0**1023, 2.0**-1022, 15),
}


def _dtype_of(o) -> _core.dtype:
    return o.dtype if isinstance(o, Tensor) else _core._as_dtype(o)


def finfo(dtype, /) -> _types.SimpleNamespace:
    """The limits of a float dtype: bits, eps, max, min, smallest_normal."""
    dtype = _dtype_of(dtype)
    if str(dtype) not in _floats:
        raise _core.DtypeError(f"finfo is for float dtypes, not {dtype}")
    bits, eps, largest, smallest, digits = _floats[str(dtype)]
    return _types.SimpleNamespace(bits=bits, eps=eps, max=largest, min=-largest, smallest_normal=smallest,
                                  tiny=smallest, resolution=10.0**-digits, dtype=dtype)


def iinfo(dtype, /) -> _types.SimpleNamespace:
    """The limits of an integer dtype: bits, max, min."""
    dtype = _dtype_of(dtype)
    if str(dtype) not in _ints:
        raise _core.DtypeError(f"iinfo is for integer dtypes, not {dtype}")
    bits, signed = _ints[str(dtype)]
    return _types.SimpleNamespace(bits=bits, max=2 ** (bits - signed) - 1, min=-(2 ** (bits - 1)) if signed else 0,
                                  dtype=dtype)


def isdtype(dtype, kind) -> _b.bool:
    """Whether a dtype is of a kind: 'bool', 'signed integer', 'real floating', 'numeric', a dtype, or a tuple."""
    if isinstance(kind, tuple):
        return _b.any(isdtype(dtype, k) for k in kind)
    name = str(_core._as_dtype(dtype))
    if isinstance(kind, str):
        signed = name in _ints and _ints[name][1]
        kinds = {
            "bool": name == "bool",
            "signed integer": signed,
            "unsigned integer": name in _ints and not signed,
            "integral": name in _ints,
            "real floating": name in _floats,
            "complex floating": False,
            "numeric": name in _ints or name in _floats,
        }
        if kind in kinds:
            return kinds[kind]
        if kind not in _ints and kind not in _floats:
            raise _core.ArgumentError(f"no kind {kind!r}; there are {', '.join(map(repr, kinds))}")
    return _core._as_dtype(dtype) == _core._as_dtype(kind)


def result_type(*arrays_and_dtypes) -> _core.dtype:
    """The dtype of an op of these tensors, dtypes and numbers. A number is weak."""
    strong = [_dtype_of(o) for o in arrays_and_dtypes if not isinstance(o, (bool, int, float))]
    numbers = [o for o in arrays_and_dtypes if isinstance(o, (bool, int, float))]
    if not arrays_and_dtypes:
        raise _core.ArgumentError("result_type needs an array, a dtype or a number")
    if not strong:
        return _core.float32 if _b.any(isinstance(n, float) for n in numbers) else (
            _core.bool if _b.all(isinstance(n, _b.bool) for n in numbers) else _core.int64)
    dtype = strong[0]
    for other in strong[1:]:
        dtype = _core._promote(dtype, other)
    for n in numbers:
        if isinstance(n, float) and not dtype.is_floating_point:
            dtype = _core.float32
        elif not isinstance(n, _b.bool) and dtype == _core.bool:
            dtype = _core.int64
    return dtype


def can_cast(from_, to, /) -> _b.bool:
    """Whether promotion leads from one dtype to the other."""
    return _core._promote(_dtype_of(from_), _core._as_dtype(to)) == _core._as_dtype(to)


def astype(x, dtype, /, *, copy=True, device=None) -> Tensor:
    """The tensor in another dtype."""
    return x.to(dtype=dtype, device=device, copy=copy)


# --- shapes ---------------------------------------------------------------------------------------


def broadcast_shapes(*shapes) -> tuple[int, ...]:
    """The shape to which all shapes broadcast."""
    rank = _b.max((len(s) for s in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for i, n in enumerate(reversed(tuple(shape))):
            if n != 1:
                if result[rank - 1 - i] not in (1, n):
                    raise _core.ShapeError(f"the shapes {', '.join(map(str, shapes))} do not broadcast")
                result[rank - 1 - i] = n
    return tuple(result)


def broadcast_to(x, /, shape) -> Tensor:
    """The tensor broadcast to a shape."""
    return _core.expand(x, shape)


def broadcast_arrays(*arrays) -> tuple[Tensor, ...]:
    """All tensors broadcast to one shape."""
    shape = broadcast_shapes(*(a.shape for a in arrays))
    return tuple(_core.expand(a, shape) for a in arrays)


def reshape(x, /, shape, *sizes, copy=None) -> Tensor:
    """The elements in another shape, in row-major order; without a copy where the strides allow it."""
    y = _core.reshape(x, (shape, *sizes) if sizes else shape)
    return y.clone() if copy else y


def flip(x, /, axis=None) -> Tensor:
    """The elements in reverse order along all axes, or some."""
    return _core.flip(x, list(range(x.ndim)) if axis is None else axis)


def concat(arrays, /, *, axis=0) -> Tensor:
    """Tensors joined along an axis; along None, their elements in row-major order."""
    if axis is None:
        arrays, axis = [a.reshape(-1) for a in arrays], 0
    return _core.cat(arrays, axis)


def expand_dims(x, /, axis=0) -> Tensor:
    """A new axis of size 1, or several."""
    if isinstance(axis, int):
        return _core.unsqueeze(x, axis)
    rank = x.ndim + len(axis)
    places = sorted(a + rank if a < 0 else a for a in axis)
    if len(set(places)) != len(places) or _b.any(a < 0 or a >= rank for a in places):
        raise _core.IndexError(f"the axes {tuple(axis)} do not fit a result of {rank} dimensions")
    for a in places:
        x = _core.unsqueeze(x, a)
    return x


def moveaxis(x, source, destination, /) -> Tensor:
    """Axes moved to other places."""
    return _core.movedim(x, source, destination)


def matrix_transpose(x, /) -> Tensor:
    """The last two axes transposed."""
    return x.mT


def unstack(x, /, *, axis=0) -> tuple[Tensor, ...]:
    """The parts along an axis, as a tuple."""
    return _core.unbind(x, axis)


def repeat(x, repeats, /, *, axis=None) -> Tensor:
    """Each element repeated, along an axis or of all in row-major order."""
    if not isinstance(repeats, int):
        if isinstance(repeats, Tensor) and repeats.numel() == 1:
            repeats = int(repeats)
        else:
            raise _core.UnsupportedError("repeat with a count for each element is not there yet")
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = axis + x.ndim if axis < 0 else axis
    shape = list(x.shape)
    y = _core.expand(_core.unsqueeze(x, axis + 1), shape[: axis + 1] + [repeats] + shape[axis + 1:])
    shape[axis] *= repeats
    return y.reshape(shape)


def squeeze(x, /, axis=None) -> Tensor:
    """Axes of size 1 removed: one, several, or (None) all."""
    if axis is None:
        return _core.squeeze(x)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for a in axes:
        if not -x.ndim <= a < x.ndim:
            raise _core.IndexError(f"squeeze: axis {a} of a tensor of {x.ndim} dimensions")
        if x.shape[a] != 1:
            raise _core.ShapeError(f"squeeze: axis {a} has size {x.shape[a]}; only axes of size 1 can be removed")
    gone = {a % x.ndim for a in axes}
    return x.reshape([n for i, n in enumerate(x.shape) if i not in gone])


def roll(x, /, shift, *, axis=None) -> Tensor:
    """Elements moved along axes, or in row-major order; those that leave at the end come in at the start."""
    if axis is None:
        return _core.roll(x.reshape(-1), shift, axis=0).reshape(x.shape)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    if len(shifts) != len(axes):
        raise _core.ArgumentError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for n, a in zip(shifts, axes):
        x = _core.roll(x, n, axis=a)
    return x


def take(x, indices, /, *, axis=None) -> Tensor:
    """The parts of an axis with these indices; negative ones count from the end."""
    if axis is None:
        if x.ndim != 1:
            raise _core.ArgumentError(f"take needs an axis for a tensor of {x.ndim} dimensions")
        axis = 0
    indices = _core.as_tensor(indices)
    place = (slice(None),) * (axis % x.ndim) + (indices,)
    return x[place]


def take_along_axis(x, indices, /, *, axis=-1) -> Tensor:
    """For each position the element at its own index along an axis."""
    axis %= x.ndim
    shape = broadcast_shapes([1 if i == axis else n for i, n in enumerate(x.shape)],
                             [1 if i == axis else n for i, n in enumerate(indices.shape)])
    wide = lambda t: _core.expand(t, [t.shape[axis] if i == axis else n for i, n in enumerate(shape)])  # noqa: E731
    indices = _core.where(indices < 0, indices + x.shape[axis], indices)
    return _core.gather(wide(x), axis, wide(indices))


def nonzero(x, /) -> tuple[Tensor, ...]:
    """The indices of the elements that are not 0: a tensor for each axis."""
    if x.ndim == 0:
        raise _core.ShapeError("nonzero of a tensor of rank 0")
    return _core.unbind(_core.nonzero(x), 1)


def sort(x, /, *, axis=-1, descending=False, stable=True) -> Tensor:
    """The elements in order along an axis."""
    return _core.sort(x, axis=axis, descending=descending)[0]


# --- numbers --------------------------------------------------------------------------------------


def clip(x, /, min=None, max=None) -> Tensor:
    """The elements limited to a range; the limits are numbers or tensors."""
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        limits = [None if m is None else _core.as_tensor(m).to(x.dtype) for m in (min, max)]
        return _core.clamp_tensor(x, *limits)
    return x.clone() if min is None and max is None else _core.clamp(x, min=min, max=max)


def _kept(x, dtype) -> _core.dtype:
    """The dtype of a sum: floats stay as they are, integers and bools become the default integer."""
    return dtype if dtype is not None else x.dtype if x.dtype.is_floating_point else _core.int64


def std(x, axis=None, correction=0.0, keepdims=False, *, dim=None, keepdim=False) -> Tensor:
    """The standard deviation; of the population, unlike PyTorch's (correction=1)."""
    return _core.std(x, axis=axis if dim is None else dim, correction=correction, keepdims=keepdims or keepdim)


def var(x, axis=None, correction=0.0, keepdims=False, *, dim=None, keepdim=False) -> Tensor:
    """The variance; of the population, unlike PyTorch's (correction=1)."""
    return _core.var(x, axis=axis if dim is None else dim, correction=correction, keepdims=keepdims or keepdim)


def _cumulative(op, start, x, axis, dtype, include_initial) -> Tensor:
    if axis is None:
        if x.ndim != 1:
            raise _core.ArgumentError(f"a cumulative op needs an axis for a tensor of {x.ndim} dimensions")
        axis = 0
    y = op(x.to(_kept(x, dtype)), axis)
    if not include_initial:
        return y
    shape = list(y.shape)
    shape[axis] = 1
    return _core.cat([_core.full(shape, start, dtype=y.dtype, device=y.device), y], axis=axis)


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False) -> Tensor:
    """Sums of all elements up to each."""
    return _cumulative(_core.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False) -> Tensor:
    """Products of all elements up to each."""
    return _cumulative(_core.cumprod, 1, x, axis, dtype, include_initial)


def positive(x, /) -> Tensor:
    """The tensor itself, as a copy."""
    return x.clone()


def count_nonzero(x, /, *, axis=None, keepdims=False) -> Tensor:
    """How many elements are not 0."""
    return _core.sum(x != 0, axis=axis, keepdims=keepdims, dtype=_core.int64)


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None) -> Tensor:
    """The differences of neighbours along an axis, n times."""
    parts = [p for p in (prepend, x, append) if p is not None]
    x = _core.cat(parts, axis=axis) if len(parts) > 1 else x
    for _ in range(n):
        size = x.shape[axis]
        a, b = _core.narrow(x, axis, 1, size - 1), _core.narrow(x, axis, 0, size - 1)
        x = a != b if x.dtype == _core.bool else a - b
    return x


def isin(x1, x2, /, *, invert=False) -> Tensor:
    """Which elements of x1 are among those of x2."""
    x1, x2 = (_core.as_tensor(x) for x in (x1, x2))
    found = _core.any(x1.reshape(-1, 1) == x2.reshape(1, -1), axis=1).reshape(x1.shape) if x2.numel() else (
        _core.zeros(x1.shape, dtype=_core.bool))
    return _core.logical_not(found) if invert else found


def vecdot(x1, x2, /, *, axis=-1) -> Tensor:
    """The scalar products along an axis."""
    return _core.sum(x1 * x2, axis=axis, dtype=result_type(x1, x2))


def tensordot(x1, x2, /, *, axes=2) -> Tensor:
    """Products summed over pairs of axes."""
    if isinstance(axes, int):
        a, b = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        a, b = ([i] if isinstance(i, int) else list(i) for i in axes)
    a, b = [i % x1.ndim for i in a], [i % x2.ndim for i in b]
    left = [i for i in range(x1.ndim) if i not in a]
    right = [i for i in range(x2.ndim) if i not in b]
    shape = [x1.shape[i] for i in left] + [x2.shape[i] for i in right]
    inner = 1
    for i, k in zip(a, b):
        if x1.shape[i] != x2.shape[k]:
            raise _core.ShapeError(f"tensordot sums axis {i} of size {x1.shape[i]} with axis {k} of size {x2.shape[k]}")
        inner *= x1.shape[i]
    m = _core.permute_dims(x1, left + a).reshape(-1 if inner else 0, inner)
    return (m @ _core.permute_dims(x2, b + right).reshape(inner, -1 if inner else 0)).reshape(shape)


def cross(x1, x2, /, *, axis=-1) -> Tensor:
    """The vector product of vectors of three elements."""
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise _core.ShapeError(f"cross is for vectors of 3 elements, not {x1.shape[axis]} and {x2.shape[axis]}")
    a, b = (_core.unbind(x, axis) for x in broadcast_arrays(x1, x2))
    parts = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
    return _core.stack(parts, axis=axis)


def trace(x, /, *, offset=0, dtype=None) -> Tensor:
    """The sum of a diagonal of matrices."""
    return _core.sum(_core.diagonal(x, offset=offset, axis1=-2, axis2=-1), axis=-1, dtype=dtype)


# --- what is there --------------------------------------------------------------------------------


class __array_namespace_info__:
    """What the array API standard asks of a library about its devices and dtypes."""

    def capabilities(self) -> dict[str, object]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}

    def default_device(self) -> _core.device:
        return _core.get_default_device()

    def default_dtypes(self, *, device=None) -> dict[str, _core.dtype]:
        return {"real floating": _core.float32, "integral": _core.int64, "indexing": _core.int64}

    def devices(self) -> list[_core.device]:
        return [_core.device("cpu")]

    def dtypes(self, *, device=None, kind=None) -> dict[str, _core.dtype]:
        names = ["bool", *_ints, *(n for n in _floats)]
        every = {n: getattr(_core, n) for n in names if n not in ("float16", "bfloat16")}
        return every if kind is None else {n: d for n, d in every.items() if isdtype(d, kind)}


# --- gradients ------------------------------------------------------------------------------------


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=False) -> tuple[Tensor, ...]:
    """The gradients of the sum of outputs with respect to inputs, as a tuple."""
    outputs, inputs = ([x] if isinstance(x, Tensor) else list(x) for x in (outputs, inputs))
    given = [] if grad_outputs is None else [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    retain = create_graph if retain_graph is None else retain_graph
    return _core._grad(outputs, inputs, given, retain, create_graph, allow_unused)
