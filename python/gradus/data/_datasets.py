"""Datasets: built-in ones, those of a program, and what can be made of them.

A built-in dataset holds a dataset of the library, and what is made of such datasets by functions of the library holds one,
too: loaders read them without Python. Everything else is an object with __len__ and __getitem__.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, Iterator, Sequence

from gradus import _core
from gradus._core import Tensor
from gradus._records import Records
from gradus.data import _random
from gradus.data._collate import as_tensor
from gradus.data._samplers import seed_of, shuffled


def is_built(dataset: Any) -> bool:
    """Whether it holds a dataset of the library."""
    return _core._dataset_made(dataset)


class Dataset:
    """Base of datasets: a subclass has __len__ and __getitem__.

        class Squares(gd.data.Dataset):
            def __len__(self):
                return 100
            def __getitem__(self, i):
                return gd.tensor(float(i)), i * i
    """

    @classmethod
    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no function __getitem__")

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])

    def map(self, function: Callable[..., Any]) -> Dataset:
        """function(sample) for each sample, when it is needed; an argument `rng` gets the sample's random numbers."""
        return _Mapped(self, function)

    def filter(self, function: Callable[[Any], Any]) -> Subset:
        """The samples for which function(sample) is true. Reads all samples once, now."""
        return Subset(self, [i for i in range(len(self)) if function(_random.get_sample(self, i))])  # type: ignore[arg-type]

    def transform(self, *transforms: Any, field: int = 0) -> Dataset:
        """Applies these transforms to one tensor of each sample."""
        return _Transformed(self, transforms, field)


class IterableDataset(Dataset):
    """Base of datasets that are streams: a subclass has __iter__. A loader reads it on the thread that trains."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no function __iter__")


class BuiltDataset(_core.Dataset, Dataset):
    """A dataset that the library may know. Samples are tuples of tensors."""

    _record: str | None = None
    _make: Any = None  # (function, arguments), for pickle

    def __len__(self) -> int:
        return _core._dataset_len(self)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Subset(self, range(*index.indices(len(self))))
        return self._get(checked_index(self, index))

    def _get(self, index: int) -> Any:
        return _core._dataset_get(self, index, _random.sample_key())

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    @property
    def classes(self) -> list[str]:
        """The names of the classes; empty if there are none."""
        return _core._dataset_classes(self)

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of each class."""
        return {name: i for i, name in enumerate(self.classes)}

    @property
    def layout(self) -> str | None:
        """How a table became samples: its columns, categories, means. CSV(path, layout=...) reads another file in the same way."""
        return _core._dataset_layout(self)

    def sample_name(self, index: int) -> str:
        """The name of a sample in messages: 'cats/3.jpg'."""
        return _core._dataset_name(self, checked_index(self, index))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} samples)"

    def __reduce__(self) -> Any:
        if self._make is None:
            raise TypeError(f"{type(self).__name__} cannot be pickled")
        return _remake, (type(self), *self._make)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self  # a dataset never changes


def _remake(cls: type, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    return cls(*args, **names)


def checked_index(dataset: Any, index: Any) -> int:
    """A number of a sample, counted from the end if it is negative."""
    n, i = len(dataset), index.__index__()
    if not -n <= i < n:
        raise _core.IndexError(f"sample {i} does not exist; {type(dataset).__name__} has {n} samples")
    return int(i + n if i < 0 else i)


# --- records ------------------------------------------------------------------------------------------------

def _apply(function: Any, x: Any) -> Any:
    if _random.takes_rng(function):
        return function(x, rng=_random.get_sample_rng())
    return function(x)


def _transforms_of(transform: Any) -> list[Any] | None:
    """The library's transforms that a transform consists of; None if there are others."""
    if isinstance(transform, _core.Transform):
        return [transform]
    parts = getattr(transform, "transforms", None)
    if not isinstance(parts, (list, tuple)) or type(transform).__module__ != "gradus.transforms":
        return None
    found = [_transforms_of(part) for part in parts]
    return None if any(f is None for f in found) else [t for f in found for t in f or ()]


class _WithPart:
    """train=True and part="train" are the same."""

    @staticmethod
    def fill(names: dict[str, Any], train: Any) -> None:
        part = names.get("part")
        if isinstance(train, str):  # MNIST("mnist", "test")
            train = {"train": True, "test": False}.get(train, train)
            if isinstance(train, str):
                raise _core.ArgumentError(f"part is '{train}'; it must be 'train' or 'test'")
        if part is None:
            names["part"] = "train" if train is None or train else "test"
        elif train is not None and bool(train) != (part == "train"):
            raise _core.ArgumentError(f"train={train} and part='{part}' contradict each other")


def _init_for(init: Any, path: str, has_part: bool) -> Any:
    """The constructor of a built-in dataset: the record's, with train=, transform= and target_transform=."""

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, transform: Any = None, target_transform: Any = None, **names: Any) -> None:
        self._make = args, {**names, "transform": transform, "target_transform": target_transform}
        if args:
            args = (_path(args[0]), *args[1:])
        elif path in names or "root" in names and path == "path":
            names[path] = _path(names.pop(path, None) or names.pop("root"))
        if has_part:
            train = names.pop("train", None)
            if len(args) > 1:
                train, args = args[1], (args[0], *args[2:])
            _WithPart.fill(names, train)
        names.pop("download", None)
        if transform is None and target_transform is None:
            init(self, *args, **names)
        else:
            plain = BuiltDataset.__new__(BuiltDataset)
            init(plain, *args, **names)
            _with_transforms(self, plain, transform, target_transform)

    import inspect  # slow to import

    parameters = [p for p in inspect.signature(init).parameters.values() if p.name != "part" and p.kind is not p.VAR_KEYWORD]
    keyword = inspect.Parameter.KEYWORD_ONLY
    if has_part:
        at = 2  # self, path
        parameters.insert(at, inspect.Parameter("train", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=True))
        parameters = parameters[:at + 1] + [p.replace(kind=keyword) for p in parameters[at + 1:]]
        parameters.append(inspect.Parameter("part", keyword, default=None))
    parameters += [inspect.Parameter(name, keyword, default=None) for name in ("transform", "target_transform")]
    __init__.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return __init__


def _path(path: Any) -> Any:
    return path.__fspath__() if hasattr(path, "__fspath__") else path


def _with_transforms(self: BuiltDataset, plain: BuiltDataset, transform: Any, target_transform: Any) -> None:
    known = _transforms_of(transform) if transform is not None else []
    if target_transform is None and known:
        _core._dataset_transform(self, plain, known)
        return
    python: Any = self
    python.__class__ = _python_class(type(self))  # type: ignore[arg-type]
    python._inner, python._transform, python._target_transform = plain, transform, target_transform


class _PythonTransforms:
    """A built-in dataset with functions of the program: Python makes its samples."""

    _inner: BuiltDataset
    _transform: Any
    _target_transform: Any

    def __len__(self) -> int:
        return len(self._inner)

    def _get(self, index: int) -> Any:
        first, *rest = self._inner[index]
        if self._transform is not None:
            first = _apply(self._transform, first)
        if self._target_transform is not None and rest:
            rest[0] = _apply(self._target_transform, rest[0])
        return (first, *rest)

    @property
    def classes(self) -> list[str]:
        return self._inner.classes

    @property
    def layout(self) -> str | None:
        return self._inner.layout

    def sample_name(self, index: int) -> str:
        return self._inner.sample_name(index)

    def __reduce__(self) -> Any:
        return _remake, (type(self).__mro__[2], *self._make)  # type: ignore[attr-defined]


@functools.cache
def _python_class(cls: type) -> type:
    return type(cls.__name__, (_PythonTransforms, cls), {"__module__": cls.__module__})


records = Records("dataset", BuiltDataset, "gradus.data")
_noted: set[str] = set()


def record_class(name: str) -> type:
    """The class of a built-in dataset: "MNIST"."""
    cls = records.get(name)
    if name not in _noted:
        _noted.add(name)
        init = cls.__init__  # type: ignore[misc]
        signature = init.__text_signature__.strip("()").split(", ")  # $self, path, part, *, bytes=False
        path = signature[1].partition("=")[0]
        cls.__init__ = _init_for(init, path, "part" in signature)  # type: ignore[misc]
    return cls


_core._set_finder(_core.Dataset, lambda record: BuiltDataset)


# --- datasets of datasets -----------------------------------------------------------------------------------

class _Combined(BuiltDataset):
    """A dataset that the library makes of its own datasets, and Python of others."""

    def __len__(self) -> int:
        return _core._dataset_len(self) if is_built(self) else self._count()

    def _count(self) -> int:
        raise NotImplementedError

    def _python_get(self, index: int) -> Any:
        raise NotImplementedError

    def _get(self, index: int) -> Any:
        return super()._get(index) if is_built(self) else self._python_get(index)

    def _first(self) -> Any:
        """The dataset whose classes these are."""
        raise NotImplementedError

    @property
    def classes(self) -> list[str]:
        return super().classes if is_built(self) else list(getattr(self._first(), "classes", ()))

    def sample_name(self, index: int) -> str:
        return super().sample_name(index) if is_built(self) else f"sample {checked_index(self, index)}"


class TensorDataset(BuiltDataset):
    """Sample i is x[i] of each of these tensors or arrays, which have the same length."""

    def __init__(self, *tensors: Any) -> None:
        self.tensors = tuple(as_tensor(t) for t in tensors)
        self._make = self.tensors, {}
        _core._dataset_tensors(self, self.tensors)


class Subset(_Combined):
    """These samples of a dataset."""

    def __init__(self, dataset: Any, indices: Any) -> None:
        self.dataset = dataset
        self._make = (dataset, indices), {}
        if isinstance(indices, range) and indices.step == 1 and is_built(dataset):
            self.indices: Sequence[int] = indices
            _core._dataset_range(self, dataset, indices.start if len(indices) else 0, len(indices))
            return
        self.indices = indices.tolist() if hasattr(indices, "tolist") else [i.__index__() for i in indices]
        if is_built(dataset):
            n = len(dataset)
            _core._dataset_subset(self, dataset, _core.tensor([i + n if i < 0 else i for i in self.indices], dtype=_core.int64)
                                  if self.indices else _core.zeros(0, dtype=_core.int64))

    def _count(self) -> int:
        return len(self.indices)

    def _python_get(self, index: int) -> Any:
        return _random.get_sample(self.dataset, self.indices[index])

    def _first(self) -> Any:
        return self.dataset


class ConcatDataset(_Combined):
    """The samples of the first dataset, then those of the second, and so on."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        self._make = (self.datasets,), {}
        if not self.datasets:
            raise _core.ArgumentError("ConcatDataset needs at least one dataset")
        if all(map(is_built, self.datasets)):
            _core._dataset_concat(self, self.datasets)

    @property
    def cumulative_sizes(self) -> list[int]:
        """The number of samples up to the end of each dataset."""
        sizes, sum_ = [], 0
        for d in self.datasets:
            sum_ += len(d)
            sizes.append(sum_)
        return sizes

    def _count(self) -> int:
        return sum(len(d) for d in self.datasets)

    def _python_get(self, index: int) -> Any:
        for d in self.datasets:
            if index < len(d):
                return _random.get_sample(d, index)
            index -= len(d)
        raise _core.IndexError("the datasets have become shorter")

    def _first(self) -> Any:
        return self.datasets[0]


class StackDataset(_Combined):
    """Sample i is a tuple of sample i of each dataset; of the library's datasets the tensors of all of them."""

    def __init__(self, *datasets: Any) -> None:
        self.datasets = datasets
        self._make = datasets, {}
        if len({len(d) for d in datasets}) != 1:
            raise _core.ArgumentError(f"the datasets have {', '.join(str(len(d)) for d in datasets)} samples")
        if all(map(is_built, datasets)):
            _core._dataset_zip(self, datasets)

    def _count(self) -> int:
        return len(self.datasets[0])

    def _python_get(self, index: int) -> Any:
        return tuple(_random.get_sample(d, index) for d in self.datasets)

    def _first(self) -> Any:
        return self.datasets[0]


class _Mapped(_Combined):
    def __init__(self, dataset: Any, function: Callable[..., Any]) -> None:
        self.dataset, self.function = dataset, function
        self._make = (dataset, function), {}

    def _count(self) -> int:
        return len(self.dataset)

    def _python_get(self, index: int) -> Any:
        return _apply(self.function, _random.get_sample(self.dataset, index))

    def _first(self) -> Any:
        return self.dataset


class _Transformed(_Combined):
    def __init__(self, dataset: Any, transforms: Sequence[Any], field: int = 0) -> None:
        self.dataset, self.transforms, self.field = dataset, tuple(transforms), field
        self._make = (dataset, transforms, field), {}
        known = [_transforms_of(t) for t in transforms]
        if is_built(dataset) and field == 0 and None not in known:
            _core._dataset_transform(self, dataset, [t for found in known for t in found or ()])

    def _count(self) -> int:
        return len(self.dataset)

    def _python_get(self, index: int) -> Any:
        sample = _random.get_sample(self.dataset, index)
        parts = list(sample) if isinstance(sample, (tuple, list)) else [sample]
        for transform in self.transforms:
            parts[self.field] = _apply(transform, parts[self.field])
        return type(sample)(parts) if isinstance(sample, (tuple, list)) else parts[0]

    def _first(self) -> Any:
        return self.dataset


def random_split(dataset: Any, lengths: Sequence[float], generator: Any = None, *, seed: int | None = None) -> list[Subset]:
    """Splits a dataset at random: into so many samples each, or into shares whose sum is 1."""
    n = len(dataset)
    if all(isinstance(part, int) for part in lengths) and sum(lengths) == n:
        counts = [int(part) for part in lengths]
    elif abs(sum(lengths) - 1) < 1e-6 and all(0 <= part <= 1 for part in lengths):
        counts = [int(n * part) for part in lengths]
        for i in range(n - sum(counts)):  # what is left, one each
            counts[i % len(counts)] += 1
    else:
        raise _core.ArgumentError(f"the sum of the lengths {list(lengths)} must be {n}, the number of samples, or 1 for shares")
    order = shuffled(n, seed_of(generator, seed)).tolist() if n else []
    parts, first = [], 0
    for count in counts:
        parts.append(Subset(dataset, order[first:first + count]))
        first += count
    return parts
