"""gradus.transforms: transforms of images and other tensors, with torchvision's names.

    from gradus import transforms as T
    train = gd.data.CIFAR10("cifar", transform=T.Compose([
        T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), T.Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26))]))

A transform is called with an image (C, H, W), float in [0, 1] or uint8, or with an image of PIL or an array (H, W, C) of
uint8, which become one. Random ones draw from the sample's random numbers in a loader, otherwise from those that gd.manual_seed
sets. docs/reference/transforms.md has all of them.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

from gradus import _core
from gradus._core import Tensor
from gradus._records import Records
from gradus.data import _random
from gradus.data._collate import from_image, is_image

TYPE_CHECKING = False
if TYPE_CHECKING:

    def __getattr__(name: str) -> type[Any]: ...  # transforms of the library


def _as_image(x: Any) -> Any:
    """PIL's images, and arrays that are no tensors, as (C, H, W)."""
    if isinstance(x, Tensor):
        return x
    if is_image(x):
        return from_image(x)
    shape: Any = getattr(x, "shape", ())
    if len(shape) == 3 and tuple(shape)[2] in (1, 3, 4) and str(getattr(x, "dtype", "")) == "uint8" and hasattr(x, "__array_interface__"):
        return _core.permute_dims(_core.as_tensor(x), (2, 0, 1))
    return x


class Transform(_core.Transform):
    """A transform of the library."""

    _arguments: tuple[tuple[Any, ...], dict[str, Any]] = (), {}

    def __call__(self, x: Any, *, rng: Any = None) -> Tensor:
        """The transformed image; `rng` are random numbers of a sample."""
        return _core._transform_apply(self, _as_image(x), _random.current_state() if rng is None else rng._state)

    forward = __call__

    def __repr__(self) -> str:
        args, names = self._arguments
        return f"{type(self).__name__}({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in names.items())])})"

    def __reduce__(self) -> Any:
        return _remake, (type(self), *self._arguments)

    def __copy__(self) -> Transform:
        return self

    def __deepcopy__(self, memo: Any) -> Transform:
        return self  # it never changes


def _remake(cls: type, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    return cls(*args, **names)


class Compose:
    """Transforms, one after the other."""

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        self.transforms = list(transforms)

    def __call__(self, x: Any) -> Any:
        for transform in self.transforms:
            x = transform(x)
        return x

    def __repr__(self) -> str:
        return f"Compose({self.transforms!r})"


class Lambda:
    """A function as a transform. An argument `rng` gets the sample's random numbers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(f"Lambda needs a function, not a {type(function).__name__}")
        self.function = function
        self._rng = _random.takes_rng(function)

    def __call__(self, x: Any) -> Any:
        return self.function(x, rng=_random.get_sample_rng()) if self._rng else self.function(x)


class ToTensor:
    """An image of PIL, an array (H, W, C) or (H, W), or a tensor of uint8 becomes a tensor (C, H, W) of floats in [0, 1].

    An array or a tensor that is not uint8 keeps its numbers, and a tensor its shape.
    """

    def __call__(self, x: Any) -> Tensor:
        if isinstance(x, Tensor):
            y = x
        elif is_image(x):
            y = from_image(x)
        else:
            y = _core.as_tensor(x)
            if y.ndim == 2:
                y = y[None]
            elif y.ndim == 3:
                y = _core.permute_dims(y, (2, 0, 1))
            else:
                raise _core.ShapeError(f"ToTensor: an image has 2 or 3 axes, and this array has {y.ndim}")
            if y.dtype != _core.uint8:
                return y.clone()
        return y.to(_core.float32) / 255 if y.dtype == _core.uint8 else y

    def __repr__(self) -> str:
        return "ToTensor()"


class PILToTensor:
    """An image of PIL becomes a tensor (C, H, W) with its values."""

    def __call__(self, x: Any) -> Tensor:
        return from_image(x)


class RandomApply:
    """These transforms with probability p."""

    def __init__(self, transforms: Sequence[Callable[..., Any]], p: float = 0.5) -> None:
        self.transforms, self.p = list(transforms), p

    def __call__(self, x: Any) -> Any:
        if _random.get_sample_rng().random() < self.p:
            for transform in self.transforms:
                x = transform(x)
        return x


class RandomChoice:
    """One of these transforms."""

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        self.transforms = list(transforms)

    def __call__(self, x: Any) -> Any:
        return _random.get_sample_rng().choice(self.transforms)(x)


_records = Records("transform", Transform, "gradus.transforms")
_variants: dict[str, tuple[str, dict[str, Any], int]] = {  # of a record, with these arguments by position and name
    "RandomHorizontalFlip": ("RandomFlip", {"axis": "horizontal"}, 0),
    "RandomVerticalFlip": ("RandomFlip", {"axis": "vertical"}, 0),
    "RandomGrayscale": ("Grayscale", {"num_output_channels": 3, "p": 0.1}, 0),
    "ConvertImageDtype": ("ConvertDtype", {}, 0),
}


def _with_arguments(name: str) -> type:
    """Notes the arguments of a transform, for repr() and pickle."""
    import functools

    cls = _records.get(name)
    init = cls.__init__  # type: ignore[misc]

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **names: Any) -> None:
        self._arguments = args, names
        init(self, *args, **names)

    cls.__init__ = __init__  # type: ignore[misc]
    return cls


if not TYPE_CHECKING:

    def __getattr__(name):
        if name in _records:
            found = globals()[name] = _with_arguments(name)
            return found
        if name in _variants:
            return _variant(name)
        raise AttributeError(f"module 'gradus.transforms' has no attribute '{name}'")

    def _variant(name):
        record, given, _ = _variants[name]
        base = globals().get(record) or __getattr__(record)
        first = "p" if name.startswith("Random") else None

        def __init__(self, *args, **names):
            if first and len(args) == 1 and first not in names:
                names[first], args = args[0], ()
            base.__init__(self, *args, **{**given, **names})
            self._arguments = args, names

        found = globals()[name] = type(name, (base,), {"__init__": __init__, "__module__": __name__, "__doc__": base.__doc__})
        return found


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(dir(_records)) | set(_variants))
