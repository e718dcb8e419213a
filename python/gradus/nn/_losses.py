"""Losses that have tensors in their constructor: weights of classes or elements."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradus import _core
from gradus import _nn_functions as _functions
from gradus._core import Tensor
from gradus.nn import _layers
from gradus.nn._module import Module


class _Weighted(Module):
    """A loss that passes its tensors to the library's layer, in the order of `_tensors`. Without tensors it is that layer."""

    _tensors: tuple[str, ...] = ("weight",)

    def _begin(self, size_average: Any, reduce: Any, *tensors: Tensor | None) -> None:
        if size_average is not None or reduce is not None:
            raise _core.UnsupportedError(f"{type(self).__name__}: size_average and reduce are not there; "
                                         "use reduction='mean', 'sum' or 'none'")
        if any(tensor is not None for tensor in tensors):
            self.__dict__["_overrides"] = True

    def _keep(self, *tensors: Any) -> None:
        for name, tensor in zip(self._tensors, tensors):
            if tensor is None:
                object.__setattr__(self, name, None)
            else:
                self.register_buffer(name, _core.as_tensor(tensor))

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return _core._module_forward(self, input, target, *(getattr(self, name) for name in self._tensors))

    _overrides = False


class CrossEntropyLoss(_Weighted, _layers.CrossEntropyLoss):
    """Cross-entropy of softmax(input) with class numbers or probabilities; `weight` (C) is that of each class."""

    def __init__(self, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,
                 reduce: Any = None, reduction: Any = "mean", label_smoothing: float = 0.0, **names: Any) -> None:
        self._begin(size_average, reduce, weight)
        _layers.CrossEntropyLoss.__init__(self, ignore_index, reduction, label_smoothing, **names)
        self._keep(weight)


class NLLLoss(_Weighted, _layers.NLLLoss):
    """Negative log likelihood of class numbers, for logarithms of probabilities; `weight` (C) is that of each class."""

    def __init__(self, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,
                 reduce: Any = None, reduction: Any = "mean", **names: Any) -> None:
        self._begin(size_average, reduce, weight)
        _layers.NLLLoss.__init__(self, ignore_index, reduction, **names)
        self._keep(weight)


class BCELoss(_Weighted, _layers.BCELoss):
    """Binary cross-entropy of probabilities; `weight` is that of each element."""

    def __init__(self, weight: Tensor | None = None, size_average: Any = None, reduce: Any = None,
                 reduction: Any = "mean", **names: Any) -> None:
        self._begin(size_average, reduce, weight)
        _layers.BCELoss.__init__(self, reduction, **names)
        self._keep(weight)


class BCEWithLogitsLoss(_Weighted, _layers.BCEWithLogitsLoss):
    """Binary cross-entropy of sigmoid(input); `weight` is that of each element, `pos_weight` that of positive targets."""

    _tensors = ("weight", "pos_weight")

    def __init__(self, weight: Tensor | None = None, size_average: Any = None, reduce: Any = None,
                 reduction: Any = "mean", pos_weight: Tensor | None = None, **names: Any) -> None:
        self._begin(size_average, reduce, weight, pos_weight)
        _layers.BCEWithLogitsLoss.__init__(self, reduction, **names)
        self._keep(weight, pos_weight)


class MultiLabelSoftMarginLoss(_Weighted, _layers.MultiLabelSoftMarginLoss):
    """Binary cross-entropy of sigmoid(input) (N, C), averaged over the classes; `weight` (C) is that of each class."""

    def __init__(self, weight: Tensor | None = None, size_average: Any = None, reduce: Any = None,
                 reduction: Any = "mean", **names: Any) -> None:
        self._begin(size_average, reduce, weight)
        _layers.MultiLabelSoftMarginLoss.__init__(self, reduction, **names)
        self._keep(weight)


class MultiMarginLoss(_Weighted, _layers.MultiMarginLoss):
    """The hinge loss of several classes; `weight` (C) is that of each class."""

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average: Any = None,
                 reduce: Any = None, reduction: Any = "mean", **names: Any) -> None:
        self._begin(size_average, reduce, weight)
        _layers.MultiMarginLoss.__init__(self, p, margin, reduction, **names)
        self._keep(weight)


class TripletMarginWithDistanceLoss(Module):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) for any distance d; None: pairwise_distance."""

    def __init__(self, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0,
                 swap: bool = False, reduction: str = "mean") -> None:
        super().__init__()
        self.distance_function, self.margin, self.swap, self.reduction = distance_function, margin, swap, reduction

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return _functions.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function, margin=self.margin, swap=self.swap,
            reduction=self.reduction)


NLLLoss2d = NLLLoss

for _name in ("CrossEntropyLoss", "NLLLoss", "BCELoss", "BCEWithLogitsLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss",
              "TripletMarginWithDistanceLoss"):
    globals()[_name].__module__ = "gradus.nn"
