"""Other layers with PyTorch's names that need more than their record, or have none."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradus import _core
from gradus import _nn_functions as _functions
from gradus._core import Tensor
from gradus.nn import _layers
from gradus.nn._module import Module, Parameter


class Identity(_layers.Identity):
    """y = x. It takes any arguments, so that it can replace any layer."""

    def __init__(self, *args: Any, **names: Any) -> None:
        super().__init__()


# --- embeddings -----------------------------------------------------------------------------------


class Embedding(_layers.Embedding):
    """Rows of a table: indices of any shape give (..., embedding_dim)."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: Any = None,
                 norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
                 _weight: Tensor | None = None, _freeze: bool = False, **names: Any) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
                         **names)
        if _weight is not None:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise _core.ShapeError(f"the weight is {tuple(_weight.shape)}, but num_embeddings and embedding_dim are "
                                       f"{(num_embeddings, embedding_dim)}")
            self.weight = Parameter(_weight, not _freeze)
        elif _freeze:
            self.requires_grad_(False)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None,
                        max_norm: Any = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                        sparse: bool = False) -> Embedding:
        """A layer with this table."""
        rows, columns = embeddings.shape
        return cls(rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze)


class EmbeddingBag(_layers.EmbeddingBag):
    """The mean, the sum or the maximum of the rows of each bag: indices (bags, n), or (n) with the `offsets` at which the
    bags begin."""

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Any:
        if offsets is None:
            return _core._module_forward(self, input, per_sample_weights)
        if input.ndim != 1:
            raise _core.ShapeError(f"with offsets the indices are (n), not {tuple(input.shape)}")
        return _functions.embedding_bag(input, self.weight, offsets, mode=self.mode, padding_idx=self.padding_idx,
                                        per_sample_weights=per_sample_weights)

    def _from_library(self, input: Tensor, per_sample_weights: Tensor | None = None) -> Any:
        return self.forward(input, None, per_sample_weights)


# --- resizing and windows -------------------------------------------------------------------------


class Upsample(Module):
    """Resizes the spatial axes: mode is 'nearest', 'linear', 'bilinear', 'trilinear' or 'area'."""

    def __init__(self, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                 align_corners: bool | None = None, recompute_scale_factor: bool | None = None) -> None:
        super().__init__()
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return _functions.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners,
                                      self.recompute_scale_factor)

    def extra_repr(self) -> str:
        size = f"size={self.size}" if self.size is not None else f"scale_factor={self.scale_factor}"
        return f"{size}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resizes images to the nearest pixels."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Resizes images linearly, with align_corners."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class Fold(Module):
    """The sum of windows that Unfold has taken apart."""

    def __init__(self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        super().__init__()
        self.output_size, self.kernel_size, self.dilation = output_size, kernel_size, dilation
        self.padding, self.stride = padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return _functions.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


class Unfold(Module):
    """The windows of (N, C, H, W) as columns: (N, C * window, number of windows)."""

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return _functions.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class _Unpool(Module):
    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Any:
        if output_size is None:
            return _core._module_forward(self, input, indices)
        axes = int(type(self)._record[-2])  # type: ignore[index] # max_unpool2d
        unpool = (_functions.max_unpool1d, _functions.max_unpool2d, _functions.max_unpool3d)[axes - 1]
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_Unpool, _layers.MaxUnpool1d):
    """Writes the results of MaxPool1d with return_indices back to their positions, zeros elsewhere."""


class MaxUnpool2d(_Unpool, _layers.MaxUnpool2d):
    """Writes the results of MaxPool2d with return_indices back to their positions, zeros elsewhere."""


class MaxUnpool3d(_Unpool, _layers.MaxUnpool3d):
    """Writes the results of MaxPool3d with return_indices back to their positions, zeros elsewhere."""


class _Adaptive(Module):
    """None in output_size keeps a size of the input: the library's layer has no word for that."""

    _wanted: tuple[int | None, ...] | None = None

    def __init__(self, output_size: Any, **names: Any) -> None:
        if output_size is None or (not isinstance(output_size, int) and None in tuple(output_size)):
            axes = int(type(self)._record[-2])  # type: ignore[index] # adaptive_avg_pool2d
            wanted = (None,) * axes if output_size is None else tuple(output_size)
            self.__dict__.update(_wanted=wanted, _overrides=True)
            output_size = [1 if n is None else n for n in wanted]
        super().__init__(output_size, **names)  # type: ignore[call-arg]

    def forward(self, input: Tensor) -> Any:
        if self._wanted is None:
            return _core._module_forward(self, input)
        sizes = input.shape[-len(self._wanted):]
        size = [n if n is not None else int(s) for n, s in zip(self._wanted, sizes)]
        record = str(type(self)._record)
        pool = getattr(_functions, record)
        return pool(input, size, self.return_indices) if "max" in record else pool(input, size)

    _overrides = False


class _AdaptiveMax(_Adaptive):
    def __init__(self, output_size: Any, return_indices: bool = False, **names: Any) -> None:
        super().__init__(output_size, return_indices=return_indices, **names)


class AdaptiveAvgPool1d(_Adaptive, _layers.AdaptiveAvgPool1d):
    """Averages over output_size windows of nearly equal size."""


class AdaptiveAvgPool2d(_Adaptive, _layers.AdaptiveAvgPool2d):
    """Averages over windows of nearly equal size; output_size is their number along each axis, None that of the input."""


class AdaptiveAvgPool3d(_Adaptive, _layers.AdaptiveAvgPool3d):
    """Averages over windows of nearly equal size; output_size is their number along each axis, None that of the input."""


class AdaptiveMaxPool1d(_AdaptiveMax, _layers.AdaptiveMaxPool1d):
    """The largest elements of output_size windows of nearly equal size."""


class AdaptiveMaxPool2d(_AdaptiveMax, _layers.AdaptiveMaxPool2d):
    """The largest elements of windows of nearly equal size; output_size is their number along each axis, None that of the
    input."""


class AdaptiveMaxPool3d(_AdaptiveMax, _layers.AdaptiveMaxPool3d):
    """The largest elements of windows of nearly equal size; output_size is their number along each axis, None that of the
    input."""


# --- sizes that the first input tells -------------------------------------------------------------


class _Lazy(Module):
    """The layer without its first argument, which the first call tells."""

    def __init__(self, *args: Any, **names: Any) -> None:
        super().__init__(None, *args, **names)  # type: ignore[call-arg]


class LazyLinear(_Lazy, _layers.Linear):
    """Linear(out_features, ...): the first call tells in_features."""


class LazyConv1d(_Lazy, _layers.Conv1d):
    """Conv1d(out_channels, kernel_size, ...): the first call tells in_channels."""


class LazyConv2d(_Lazy, _layers.Conv2d):
    """Conv2d(out_channels, kernel_size, ...): the first call tells in_channels."""


class LazyConv3d(_Lazy, _layers.Conv3d):
    """Conv3d(out_channels, kernel_size, ...): the first call tells in_channels."""


class LazyConvTranspose1d(_Lazy, _layers.ConvTranspose1d):
    """ConvTranspose1d(out_channels, kernel_size, ...): the first call tells in_channels."""


class LazyConvTranspose2d(_Lazy, _layers.ConvTranspose2d):
    """ConvTranspose2d(out_channels, kernel_size, ...): the first call tells in_channels."""


class LazyConvTranspose3d(_Lazy, _layers.ConvTranspose3d):
    """ConvTranspose3d(out_channels, kernel_size, ...): the first call tells in_channels."""


class LazyBatchNorm1d(_Lazy, _layers.BatchNorm1d):
    """BatchNorm1d(...): the first call tells num_features."""


class LazyBatchNorm2d(_Lazy, _layers.BatchNorm2d):
    """BatchNorm2d(...): the first call tells num_features."""


class LazyBatchNorm3d(_Lazy, _layers.BatchNorm3d):
    """BatchNorm3d(...): the first call tells num_features."""


class _LazyInstanceNorm(Module):
    """As in PyTorch, affine and track_running_stats are True in these classes."""

    def __init__(self, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True, track_running_stats: bool = True,
                 **names: Any) -> None:
        super().__init__(None, eps, momentum, affine, track_running_stats, **names)  # type: ignore[call-arg]


class LazyInstanceNorm1d(_LazyInstanceNorm, _layers.InstanceNorm1d):
    """InstanceNorm1d(...): the first call tells num_features."""


class LazyInstanceNorm2d(_LazyInstanceNorm, _layers.InstanceNorm2d):
    """InstanceNorm2d(...): the first call tells num_features."""


class LazyInstanceNorm3d(_LazyInstanceNorm, _layers.InstanceNorm3d):
    """InstanceNorm3d(...): the first call tells num_features."""


for _name, _class in list(globals().items()):
    if isinstance(_class, type) and issubclass(_class, Module) and _class.__module__ == __name__ and _name[0] != "_":
        _class.__module__ = "gradus.nn"
