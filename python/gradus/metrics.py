"""gradus.metrics: values over many batches, computed with tensors.

    accuracy = gd.metrics.Accuracy()
    for x, y in loader:
        accuracy.update(net(x), y)
    print(accuracy.value().item())

compile() takes metrics by name ("accuracy, top_k k=5"), as objects, and as functions of output and target.
"""
from __future__ import annotations

import itertools as _itertools
import re as _re
import weakref as _weakref
from collections.abc import Callable
from typing import Any

from gradus import _core
from gradus._core import Tensor
from gradus._records import Records as _Records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gradus._metric_classes import *


class Metric(_core.Metric):
    """The base class. A metric of a program defines sums() and result():

        class MeanError(gd.metrics.Metric):
            def sums(self, output, target, weight):
                return {"error": gd.sum(gd.abs(output - target)), "count": output.numel()}
            def result(self, sums):
                return sums["error"] / sums["count"]
    """

    _record: str | None = None
    _numbers = _weakref.WeakValueDictionary[int, "Metric"]()  # metrics of programs
    _count = _itertools.count(1)

    def __init__(self, name: str | None = None) -> None:
        if self._record is not None or type(self) is Metric:
            raise TypeError("Metric is the base class; create a gd.metrics.Accuracy or another one")
        _define()
        self._names: dict[str, None] = {}
        self._number = next(Metric._count)
        label = _re.sub(r"\W+", "_", name or type(self).__name__).strip("_") or "metric"
        _core._metric_init(self, f"number={self._number} label={label}")
        Metric._numbers[self._number] = self

    def sums(self, output: Tensor, target: Tensor, weight: Tensor | None) -> dict[str, Any]:
        """What a batch adds to the sums."""
        raise NotImplementedError(f"{type(self).__name__} has no function sums")

    def result(self, sums: dict[str, Tensor]) -> Tensor:
        """The value for the sums of all batches."""
        raise NotImplementedError(f"{type(self).__name__} has no function result")

    @property
    def name(self) -> str:
        """Its name in histories."""
        name: str = _core._metric_name(self)
        return name

    def update(self, output: Any, target: Any, weight: Any = None) -> None:
        """Adds a batch; weight has a number for each sample."""
        _core._metric_update(self, output, target, weight)

    def value(self) -> Tensor:
        """The value over all batches since the last reset; NaN before the first."""
        value: Tensor = _core._metric_value(self)
        return value

    compute = value

    def reset(self) -> None:
        """Sets the sums to 0."""
        _core._metric_reset(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class FunctionMetric(Metric):
    """The mean of a function of output and target: one value for the batch, or one for each sample."""

    def __init__(self, function: Callable[[Tensor, Tensor], Any], name: str | None = None) -> None:
        self.function = function
        super().__init__(name or getattr(function, "__name__", type(function).__name__))

    def sums(self, output: Tensor, target: Tensor, weight: Tensor | None) -> dict[str, Any]:
        value = _core.as_tensor(self.function(output, target)).to(_core.float64)
        samples = output.shape[0] if output.ndim else 1
        if value.ndim == 0:
            return {"sum": value * samples, "count": _core.tensor(float(samples), dtype=_core.float64)}
        if value.shape[0] != samples:
            raise _core.ShapeError(f"the metric {self.name} is {tuple(value.shape)} for {samples} samples; it must be one "
                                   "number, or one for each sample")
        value = value.reshape(samples, -1).mean(1) if value.ndim > 1 else value
        w = _core.ones_like(value) if weight is None else weight.to(_core.float64)
        return {"sum": (value * w).sum(), "count": w.sum()}

    def result(self, sums: dict[str, Tensor]) -> Tensor:
        return sums["sum"] / sums["count"]


def _find(number: int) -> Metric:
    found = Metric._numbers.get(number)
    if found is None:
        raise _core.StateError("the Python object of a metric was freed; keep the module that was compiled with it")
    return found


def _update(number: int, output: Tensor, target: Tensor, weight: Tensor | None) -> dict[str, Any]:
    metric = _find(number)
    sums = metric.sums(output, target, weight)
    if not isinstance(sums, dict):
        raise TypeError(f"{type(metric).__name__}.sums must return a dict of tensors, not {type(sums).__name__}")
    metric._names.update(dict.fromkeys(sums))
    return sums


def _value(number: int, pointer: int) -> Any:
    metric = _find(number)
    if not metric._names:
        return _core.tensor(float("nan"), dtype=_core.float64)
    return metric.result({name: _core._metric_sum(pointer, name) for name in metric._names})


_defined = False


def _define() -> None:
    global _defined
    if not _defined:
        _core._metric_define(_update, _value)
        _defined = True


_metrics = _Records("metric", Metric, "gradus.metrics")


def from_text(text: str) -> Metric:
    """The metric that a text describes, with PyTorch's or the record's spelling: "top_k k=5"."""
    name, _, options = text.strip().partition(" ")
    by_class = {cls.lower(): record for record, cls in _metrics.names.items()}
    made: Metric = _core._metric_of(by_class.get(name.lower(), name), options)
    return made


def _class_for(record: str) -> type:
    name = _metrics.names.get(record)
    return _metrics.get(name) if name else Metric


_core._set_finder(_core.Metric, _class_for)

if not TYPE_CHECKING:

    def __getattr__(name):
        if name in _metrics:
            return _metrics.get(name)
        raise AttributeError(f"module 'gradus.metrics' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(dir(_metrics)))
