"""Methods of Tensor that combine ops, with PyTorch's meaning. Importing this module adds them to the type."""
import builtins

from gradus import _core
from gradus._core import Tensor


class Size(int):
    """The number of elements, as in NumPy. Called it is the shape, as in PyTorch: x.size, x.size(), x.size(0)."""

    def __new__(cls, shape, count):
        self = super().__new__(cls, count)
        self._shape = shape
        return self

    def __call__(self, dim=None):
        return self._shape if dim is None else self._shape[dim]

    def __reduce__(self):
        return int, (int(self),)


def _size(self):
    """The number of elements; called with or without an axis, the sizes."""
    return Size(self.shape, self.numel())


# --- data -----------------------------------------------------------------------------------------


_np = None  # NumPy, when it is first used


def _numpy(self, *, force=False):
    """Tensor.numpy for tensors whose buffer NumPy cannot take as it is."""
    global _np
    if _np is None:
        import numpy as _np
    if force:
        self = self.detach().cpu()
    if self.dtype is _core.bfloat16 and not self.requires_grad and self.device.type == "cpu":
        import ml_dtypes

        return _np.asarray(memoryview(_core._half_bits(self))).view(ml_dtypes.bfloat16)
    return _np.asarray(memoryview(self))  # fails where it cannot share, and says what to call


def __array__(self, dtype=None, copy=None):
    array = self.numpy()
    if dtype is not None and array.dtype != dtype:
        if copy is False:
            raise ValueError(f"the dtype {dtype} needs a copy, and copy is False")
        return array.astype(dtype)
    return array.copy() if copy else array


def __array_namespace__(self, *, api_version=None):
    import gradus

    known = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
    if api_version is not None and api_version not in known:
        raise ValueError(f"no version {api_version!r} of the array API; these are there: {', '.join(known)}")
    return gradus


def __complex__(self):
    return complex(self.item())


def __reversed__(self):
    return iter(self[::-1])


def __contains__(self, value):
    return bool((self == value).any())


def __format__(self, form):
    if form and self.ndim == 0:
        return format(self.item(), form)
    return str(self) if not form else object.__format__(self, form)


def _repr_html_(self):
    """For notebooks: a matrix of moderate size as a table."""
    import html

    head = f"<code>{html.escape(str(self.dtype))} {self.shape}</code>"
    if self.is_symbol or self.ndim not in (1, 2) or self.numel() > 400 or self.numel() == 0:
        return f"<div>{head}<pre>{html.escape(str(self))}</pre></div>"
    rows = self.tolist() if self.ndim == 2 else [self.tolist()]
    text = (lambda v: f"{v:.4g}") if self.dtype.is_floating_point else str
    body = "".join("<tr>" + "".join(f"<td>{text(v)}</td>" for v in row) + "</tr>" for row in rows)
    return f"<div>{head}<table>{body}</table></div>"


# --- copies and pickles ---------------------------------------------------------------------------


def _rebuild(data, shape, dtype, device, requires_grad):
    import gradus

    dtype = getattr(gradus, dtype)
    t = _core._from_bytes(data, dtype, shape)
    if device != "cpu":
        t = t.to(device)
    return t.requires_grad_() if requires_grad else t


def __reduce__(self):
    if not self.is_leaf:
        raise _core.StateError("only leaves can be pickled: pickle x.detach()")
    here = self.detach().cpu()
    return _rebuild, (_core._to_bytes(here), self.shape, str(self.dtype), str(self.device), self.requires_grad)


def __deepcopy__(self, memo):
    if not self.is_leaf:
        raise _core.StateError("only leaves can be copied by deepcopy: use x.detach() or x.clone()")
    copy = self.detach().clone()
    if self.requires_grad:
        copy.requires_grad_()
        if self.grad is not None:
            copy.grad = self.grad.clone()
    memo[id(self)] = copy
    return copy


# --- devices and dtypes ---------------------------------------------------------------------------


def to(self, *args, device=None, dtype=None, copy=False, non_blocking=False):
    """The tensor on a device or in a dtype: x.to("cuda"), x.to(gd.float16), x.to(other)."""
    for a in args:
        if isinstance(a, Tensor):
            device, dtype = a.device, a.dtype
        elif isinstance(a, bool):
            continue  # PyTorch's non_blocking by position
        elif isinstance(a, _core.device) or (isinstance(a, str) and _is_device(a)):
            device = a
        elif a is not None:
            dtype = a
    y = self
    if dtype is not None and y.dtype != dtype:
        y = _core.cast(y, dtype)
    if device is not None and y.device != device:
        y = _core._to_device(y, device)
    return y.clone() if copy and y is self else y


def _is_device(text):
    return text.split(":")[0] in ("cpu", "cuda", "opencl", "test")


def cpu(self):
    """The tensor in the memory of the CPU."""
    return self.to("cpu")


def cuda(self, device=None):
    """The tensor on a CUDA device."""
    return self.to("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)


def type_as(self, other):
    """The tensor in the dtype of another."""
    return self.to(other.dtype)


def type(self, dtype=None):
    """The dtype, or the tensor in another one."""
    return self.dtype if dtype is None else self.to(dtype=dtype)


def _caster(name, dtype):
    def cast(self):
        return self.to(dtype=dtype)

    cast.__name__ = name
    cast.__doc__ = f"The tensor as {dtype}."
    return cast


# --- gradients ------------------------------------------------------------------------------------


def detach_(self):
    """Drops the history; returns the tensor."""
    if not self.is_leaf:
        raise _core.UnsupportedError("detach_() of a result: write x = x.detach()")
    return self.requires_grad_(False)


def _get_data(self):
    return self.detach()


def _set_data(self, value):
    from gradus._modes import no_grad

    with no_grad():
        self.copy_(value)


def copy_(self, source, non_blocking=False):
    """Writes another tensor, broadcast and cast, into this one."""
    self[...] = source
    return self


def zero_(self):
    """Writes 0 into every element."""
    self[...] = 0
    return self


def fill_(self, value):
    """Writes a number into every element."""
    self[...] = value
    return self


# --- shapes ---------------------------------------------------------------------------------------


def _sizes(sizes):
    return sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes


def view(self, *shape):
    """The elements in another shape, without a copy."""
    if len(shape) == 1 and not isinstance(shape[0], (int, tuple, list)):
        raise _core.UnsupportedError("view(dtype): reinterpreting bits is not there; x.to(dtype) converts values")
    y = self.reshape(_sizes(shape))
    return y


def view_as(self, other):
    """The elements in the shape of another tensor."""
    return self.reshape(other.shape)


def expand_as(self, other):
    """Broadcast to the shape of another tensor."""
    return self.expand(other.shape)


def element_size(self):
    """Bytes of one element."""
    return self.itemsize


def nelement(self):
    """The number of elements."""
    return self.numel()


def ndimension(self):
    """The number of axes."""
    return self.ndim


def is_floating_point(self):
    """Whether the elements are floats."""
    return self.dtype.is_floating_point


def t(self):
    """The transpose of a matrix."""
    if self.ndim > 2:
        raise _core.ShapeError(f"t() is for at most 2 dimensions, not {self.ndim}: use x.mT or x.transpose(a, b)")
    return self.T


def new_zeros(self, *size, dtype=None, device=None, requires_grad=False):
    """Zeros of the dtype and device of this tensor."""
    return _core.zeros(_sizes(size), dtype=dtype or self.dtype, device=device or self.device,
                       requires_grad=requires_grad)


def new_ones(self, *size, dtype=None, device=None, requires_grad=False):
    """Ones of the dtype and device of this tensor."""
    return _core.ones(_sizes(size), dtype=dtype or self.dtype, device=device or self.device,
                      requires_grad=requires_grad)


def new_full(self, size, fill_value, *, dtype=None, device=None, requires_grad=False):
    """One value, in the dtype and on the device of this tensor."""
    return _core.full(size, fill_value, dtype=dtype or self.dtype, device=device or self.device,
                      requires_grad=requires_grad)


def new_empty(self, *size, dtype=None, device=None, requires_grad=False):
    """Memory that is not set, of the dtype and device of this tensor."""
    return _core.empty(_sizes(size), dtype=dtype or self.dtype, device=device or self.device,
                       requires_grad=requires_grad)


def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    """A new tensor of data, in the dtype and on the device of this one."""
    return _core.tensor(data, dtype=dtype or self.dtype, device=device or self.device,
                        requires_grad=requires_grad)


def register_hook(self, hook):
    """Each backward calls hook with the gradient; what it returns is used instead, unless it is None. Returns a handle
    whose remove() removes the hook."""
    from gradus import _autograd

    return _autograd.register_hook(self, hook)


def retain_grad(self):
    """Makes backward keep the gradient of a tensor that is no leaf in grad."""
    from gradus import _autograd

    _autograd.retain_grad(self)


def _add():
    skip = {"builtins", "Tensor", "Size"}
    for name, value in builtins.list(globals().items()):
        if callable(value) and name not in skip and (not name.startswith("_") or name.startswith("__")
                                                     or name == "_repr_html_"):
            if getattr(value, "__module__", None) == __name__:
                setattr(Tensor, name, value)
    Tensor.size = property(_size)
    Tensor.data = property(_get_data, _set_data)
    Tensor.is_cuda = property(lambda self: self.device.type == "cuda")
    for name, dtype in (("float", "float32"), ("double", "float64"), ("half", "float16"),
                        ("bfloat16", "bfloat16"), ("int", "int32"), ("long", "int64"),
                        ("bool", "bool"), ("byte", "uint8"), ("char", "int8")):
        setattr(Tensor, name, _caster(name, getattr(_core, dtype)))


_add()
