"""Samples become a batch: numbers and arrays are stacked, tuples, lists and dicts keep their structure."""
from __future__ import annotations

from typing import Any, Sequence

from gradus import _core
from gradus._core import Tensor


_PLAIN = frozenset((bool, int, float, str, bytes, tuple, list, dict))


def is_array(o: Any) -> bool:
    """Whether a value of a sample is an array: of NumPy, PyTorch, PIL or another library."""
    if type(o) in _PLAIN:
        return False
    return isinstance(o, Tensor) or (
        not isinstance(o, (str, bytes, tuple, list, dict, type)) and (not isinstance(o, (int, float)) or hasattr(o, "dtype"))
        and (hasattr(o, "__dlpack__") or hasattr(o, "__array__") or hasattr(o, "__array_interface__")))


def is_image(o: Any) -> bool:
    """Whether a value is an image of PIL."""
    return hasattr(o, "getbands") and hasattr(o, "tobytes")


def from_image(image: Any) -> Tensor:
    """A tensor (channels, height, width) of uint8 with the pixels of PIL's image."""
    if image.mode not in ("L", "RGB", "RGBA", "LA", "I", "F"):
        image = image.convert("L" if image.mode == "1" else "RGB")
    width, height = image.size
    channels = len(image.getbands())
    if image.mode in ("I", "F"):
        dtype = _core.int32 if image.mode == "I" else _core.float32
        values: Tensor = _core._from_bytes(image.tobytes(), dtype, (1, height, width))
        return values
    pixels = _core._from_bytes(image.tobytes(), _core.uint8, (height, width, channels))
    return _core.permute_dims(pixels, (2, 0, 1))


def as_tensor(o: Any) -> Tensor:
    """A tensor of a tensor, an array or an image."""
    if isinstance(o, Tensor):
        return o
    if isinstance(o, float):  # NumPy's float64 is one of Python's, too
        return _core.as_tensor(o, dtype=str(getattr(o, "dtype", "float32")))
    return from_image(o) if is_image(o) else _core.as_tensor(o)


class Collate:
    """Stacks samples, as PyTorch's default_collate. pad=True extends tensors to the largest of the batch."""

    def __init__(self, pad: bool = False, pad_value: float = 0) -> None:
        self.pad, self.pad_value = pad, pad_value

    def __call__(self, samples: Sequence[Any]) -> Any:
        first = samples[0]
        if is_array(first) or is_image(first):
            return self._stack([as_tensor(s) for s in samples])
        if isinstance(first, (bool, int, float)):
            return self._numbers(samples)
        if isinstance(first, (str, bytes)):
            return list(samples)
        if isinstance(first, dict):
            for s in samples:
                if not isinstance(s, dict) or s.keys() != first.keys():
                    raise TypeError(f"samples of a batch have different keys: {list(first)} and "
                                    f"{list(s) if isinstance(s, dict) else type(s).__name__}")
            return {key: self([s[key] for s in samples]) for key in first}
        if isinstance(first, (tuple, list)):
            return self._sequences(samples)
        raise TypeError(f"a sample has a {type(first).__name__}; tensors, arrays, images, numbers, texts, and tuples, lists and "
                        "dicts of them become a batch. Give the DataLoader a collate_fn for others")

    def _numbers(self, samples: Sequence[Any]) -> Any:
        if any(isinstance(s, float) for s in samples):
            return _core.tensor([float(s) for s in samples])
        return _core.tensor(list(samples), dtype=_core.bool if isinstance(samples[0], bool) else _core.int64)

    def _sequences(self, samples: Sequence[Any]) -> Any:
        first = samples[0]
        for s in samples:
            if not isinstance(s, (tuple, list)) or len(s) != len(first):
                raise TypeError(f"samples of a batch have different structures: a {type(first).__name__} of {len(first)} and "
                                + (f"one of {len(s)}" if isinstance(s, (tuple, list)) else f"a {type(s).__name__}"))
        parts = [self(part) for part in zip(*samples)]
        if hasattr(first, "_make"):
            return first._make(parts)
        return tuple(parts) if isinstance(first, tuple) else parts

    def _stack(self, tensors: list[Tensor]) -> Tensor:
        first = tensors[0]
        if self.pad and any(t.shape != first.shape for t in tensors):
            return self._padded(tensors)
        for i, t in enumerate(tensors):
            if t.shape != first.shape or t.dtype != first.dtype:
                raise (_core.ShapeError if t.dtype == first.dtype else _core.DtypeError)(
                    f"samples do not fit in one batch: the first has {first.dtype} {tuple(first.shape)}, number {i} of the batch "
                    f"{t.dtype} {tuple(t.shape)}" + ("" if t.dtype != first.dtype else ". Crop or resize them, or use pad=True"))
        return _core.stack(tensors)

    def _padded(self, tensors: list[Tensor]) -> Tensor:
        first = tensors[0]
        if any(t.ndim != first.ndim or t.dtype != first.dtype for t in tensors):
            raise _core.ShapeError("samples do not fit in one batch: their tensors have different ranks or dtypes")
        sizes = [max(t.shape[axis] for t in tensors) for axis in range(first.ndim)]
        batch = _core.full((len(tensors), *sizes), self.pad_value, dtype=first.dtype)
        for i, t in enumerate(tensors):
            batch[(i, *(slice(0, n) for n in t.shape))] = t
        return batch


default_collate = Collate()


def convert(o: Any) -> Any:
    """The same structure, with tensors in place of arrays and images."""
    if is_array(o) or is_image(o):
        return as_tensor(o)
    if isinstance(o, dict):
        return {key: convert(value) for key, value in o.items()}
    if isinstance(o, (tuple, list)):
        parts = [convert(part) for part in o]
        return o._make(parts) if hasattr(o, "_make") else tuple(parts) if isinstance(o, tuple) else parts
    return o


default_convert = convert


class Place:
    """Where a tensor was in a batch."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


def take(o: Any, tensors: list[Tensor]) -> Any:
    """Moves the tensors of a batch to a list, in order, and returns the rest of it."""
    if isinstance(o, Tensor):
        tensors.append(o)
        return Place(len(tensors) - 1)
    if isinstance(o, dict):
        return {key: take(value, tensors) for key, value in o.items()}
    if isinstance(o, (tuple, list)):
        parts = [take(part, tensors) for part in o]
        return o._make(parts) if hasattr(o, "_make") else tuple(parts) if isinstance(o, tuple) else parts
    return o


def put(o: Any, tensors: Sequence[Tensor]) -> Any:
    """The reverse of take."""
    if isinstance(o, Place):
        return tensors[o.number]
    if isinstance(o, dict):
        return {key: put(value, tensors) for key, value in o.items()}
    if isinstance(o, (tuple, list)):
        parts = [put(part, tensors) for part in o]
        return o._make(parts) if hasattr(o, "_make") else tuple(parts) if isinstance(o, tuple) else parts
    return o
