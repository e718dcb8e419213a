"""Functions of networks with PyTorch's meaning: torch.nn.functional."""
from __future__ import annotations

import math as _math

from gradus import _core
from gradus._core import (
    Tensor, avg_pool1d, avg_pool2d, avg_pool3d, batch_norm, binary_cross_entropy, binary_cross_entropy_with_logits,
    celu, conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d, cosine_embedding_loss,
    cross_entropy, elu, embedding, group_norm, hardsigmoid, hardswish, hardtanh, hinge_embedding_loss, huber_loss,
    instance_norm, kl_div, l1_loss, layer_norm, leaky_relu, linear, local_response_norm, logsigmoid,
    margin_ranking_loss, mish, mse_loss, nll_loss, relu, relu6, rms_norm, scaled_dot_product_attention, selu,
    sigmoid, silu, smooth_l1_loss, softplus, softsign, tanh)
from gradus._torch_methods import log_softmax, softmax

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "alpha_dropout", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "batch_norm", "bilinear", "binary_cross_entropy", "binary_cross_entropy_with_logits", "celu",
    "celu_", "channel_shuffle", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "dropout", "dropout1d",
    "dropout2d", "dropout3d", "elu", "elu_", "embedding", "embedding_bag", "feature_alpha_dropout", "fold",
    "gaussian_nll_loss", "gelu", "glu", "group_norm", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish",
    "hardtanh", "hardtanh_", "hinge_embedding_loss", "huber_loss", "instance_norm", "interpolate", "kl_div",
    "l1_loss", "layer_norm", "leaky_relu", "leaky_relu_", "linear", "local_response_norm", "log_softmax",
    "logsigmoid", "lp_pool1d", "lp_pool2d", "lp_pool3d", "margin_ranking_loss", "max_pool1d",
    "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices",
    "max_unpool1d", "max_unpool2d", "max_unpool3d", "mish", "mse_loss", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss", "normalize", "one_hot", "pad", "pairwise_distance", "pdist",
    "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "prelu", "relu", "relu6", "relu_", "rms_norm", "rrelu",
    "rrelu_", "scaled_dot_product_attention", "selu", "selu_", "sigmoid", "silu", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold",
    "threshold_", "triplet_margin_loss", "triplet_margin_with_distance_loss", "unfold", "upsample",
    "upsample_bilinear", "upsample_nearest",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# --- activations ----------------------------------------------------------------------------------


def gelu(input, approximate="none") -> Tensor:
    """x * Phi(x), with the exact Phi or, with approximate='tanh', an approximation."""
    if approximate not in ("none", "tanh"):
        raise _core.ArgumentError(f"approximate is {approximate!r}; it is 'none' or 'tanh'")
    return _core.gelu(input) if approximate == "none" else _core.gelu_tanh(input)


def threshold(input, threshold, value, inplace=False) -> Tensor:
    """x where it is above the threshold, value elsewhere."""
    y = _core.threshold(input, threshold, value)
    return input.copy_(y) if inplace else y


def prelu(input, weight) -> Tensor:
    """x where it is positive, weight * x elsewhere; weight has one element, or one for each channel."""
    if weight.numel() > 1 and input.ndim > 1:
        weight = weight.reshape([-1] + [1] * (input.ndim - 2))
    return _core.prelu(input, weight)


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False) -> Tensor:
    """leaky_relu with random slopes while training."""
    slope = (lower + upper) / 2
    if training:
        slope = _core.uniform(input.shape, lower, upper, dtype=input.dtype, device=input.device)
    y = _core.where(input >= 0, input, input * slope)
    return input.copy_(y) if inplace else y


def glu(input, dim=-1) -> Tensor:
    """One half of the axis, times the sigmoid of the other half."""
    a, b = _core.chunk(input, 2, dim)
    return a * _core.sigmoid(b)


def hardshrink(input, lambd=0.5) -> Tensor:
    """x, but 0 from -lambd to lambd."""
    return _core.where((input >= -lambd) & (input <= lambd), 0, input)


def softshrink(input, lambd=0.5) -> Tensor:
    """x moved towards 0 by lambd."""
    return input - _core.clamp(input, -lambd, lambd)


def tanhshrink(input) -> Tensor:
    """x - tanh(x)."""
    return input - _core.tanh(input)


def softmin(input, dim=None, _stacklevel=3, dtype=None) -> Tensor:
    """softmax of -x."""
    return softmax(-input, dim, dtype=dtype)


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1) -> Tensor:
    """A random sample: softmax of the logits with Gumbel noise; with hard a one-hot vector."""
    u = _core.rand(logits.shape, dtype=logits.dtype, device=logits.device)
    noise = -_core.log(-_core.log(u + 1e-20) + 1e-20)
    y = softmax((logits + noise) / tau, dim)
    if not hard:
        return y
    at = _core.argmax(y, dim, True)
    one = _core.scatter(_core.zeros_like(y), dim, at, _core.ones(at.shape, dtype=y.dtype, device=y.device))
    return one - y.detach() + y


def normalize(input, p=2.0, dim=1, eps=1e-12) -> Tensor:
    """Vectors divided by their norm."""
    return input / _core.clamp(_core.norm(input, p, dim, True), min=eps)


# --- dropout --------------------------------------------------------------------------------------


def dropout(input, p=0.5, training=True, inplace=False) -> Tensor:
    """Elements set to 0 with probability p while training, the others scaled by 1 / (1 - p)."""
    y = _core.dropout(input, p, training)
    return input.copy_(y) if inplace else y


def _drop_channels(input, p, training, inplace, axes) -> Tensor:
    if not training or p == 0:
        return input
    shape = list(input.shape[:axes]) + [1] * (input.ndim - axes)
    y = input * _core.dropout(_core.ones(shape, dtype=input.dtype, device=input.device), p)
    return input.copy_(y) if inplace else y


def dropout1d(input, p=0.5, training=True, inplace=False) -> Tensor:
    """Channels of (N,C,L) set to 0 with probability p while training."""
    return _drop_channels(input, p, training, inplace, input.ndim - 1)


def dropout2d(input, p=0.5, training=True, inplace=False) -> Tensor:
    """Channels of (N,C,H,W) set to 0 with probability p while training."""
    return _drop_channels(input, p, training, inplace, input.ndim - 2)


def dropout3d(input, p=0.5, training=True, inplace=False) -> Tensor:
    """Channels of (N,C,D,H,W) set to 0 with probability p while training."""
    return _drop_channels(input, p, training, inplace, input.ndim - 3)


def alpha_dropout(input, p=0.5, training=False, inplace=False) -> Tensor:
    """Dropout for selu: mean and variance stay."""
    if not training or p == 0:
        return input
    low = -1.7580993408473766  # the smallest value of selu
    keep = _core.rand(input.shape, device=input.device) >= p
    scale = ((1 - p) * (1 + p * low * low)) ** -0.5
    y = _core.where(keep, input, low) * scale - scale * p * low
    return input.copy_(y) if inplace else y


def feature_alpha_dropout(input, p=0.5, training=False, inplace=False) -> Tensor:
    """alpha_dropout of entire channels of (N,C,...)."""
    if not training or p == 0:
        return input
    low = -1.7580993408473766
    keep = _core.rand(list(input.shape[:2]) + [1] * (input.ndim - 2), device=input.device) >= p
    scale = ((1 - p) * (1 + p * low * low)) ** -0.5
    y = _core.where(keep, input, low) * scale - scale * p * low
    return input.copy_(y) if inplace else y


# --- windows --------------------------------------------------------------------------------------


def _max_pool(n) -> Callable[..., Any]:
    plain, both = getattr(_core, f"max_pool{n}d"), getattr(_core, f"max_pool{n}d_with_indices")

    def pool(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False) -> Any:
        return (both if return_indices else plain)(input, kernel_size, stride, padding, dilation, ceil_mode)

    pool.__name__, pool.__doc__ = f"max_pool{n}d", plain.__doc__
    return pool


max_pool1d, max_pool2d, max_pool3d = _max_pool(1), _max_pool(2), _max_pool(3)


def _size_of_result(size) -> Any:
    """None keeps a size."""
    return [-1 if n is None else n for n in size] if isinstance(size, (list, tuple)) else size


def _adaptive(n) -> Any:
    average, plain, both = (getattr(_core, name) for name in (
        f"adaptive_avg_pool{n}d", f"adaptive_max_pool{n}d", f"adaptive_max_pool{n}d_with_indices"))

    def average_pool(input, output_size) -> Tensor:
        return average(input, _size_of_result(output_size))

    def max_pool(input, output_size, return_indices=False) -> Any:
        return (both if return_indices else plain)(input, _size_of_result(output_size))

    average_pool.__name__, average_pool.__doc__ = f"adaptive_avg_pool{n}d", average.__doc__
    max_pool.__name__, max_pool.__doc__ = f"adaptive_max_pool{n}d", plain.__doc__
    return average_pool, max_pool


adaptive_avg_pool1d, adaptive_max_pool1d = _adaptive(1)
adaptive_avg_pool2d, adaptive_max_pool2d = _adaptive(2)
adaptive_avg_pool3d, adaptive_max_pool3d = _adaptive(3)


def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False) -> Tensor:
    """The norm of each window of (N,C,L)."""
    return _lp_pool(_core.avg_pool1d, 1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False) -> Tensor:
    """The norm of each window of (N,C,H,W)."""
    return _lp_pool(_core.avg_pool2d, 2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False) -> Tensor:
    """The norm of each window of (N,C,D,H,W)."""
    return _lp_pool(_core.avg_pool3d, 3, input, norm_type, kernel_size, stride, ceil_mode)


def _lp_pool(pool, axes, input, p, size, stride, ceil_mode) -> Tensor:
    count = size**axes if isinstance(size, int) else _math.prod(size)
    mean = pool(input**p, size, stride, 0, ceil_mode)
    return (_core.sign(mean) * _core.relu(_core.abs(mean)) * count) ** (1.0 / p)


def max_unpool1d(input, indices, kernel_size, stride=None, padding=0, output_size=None) -> Tensor:
    """The elements at the places where max_pool1d found them, 0 elsewhere."""
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None) -> Tensor:
    """The elements at the places where max_pool2d found them, 0 elsewhere."""
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(input, indices, kernel_size, stride=None, padding=0, output_size=None) -> Tensor:
    """The elements at the places where max_pool3d found them, 0 elsewhere."""
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)


def _unpool(axes, input, indices, kernel_size, stride, padding, output_size) -> Tensor:
    size, step, pad = ([n] * axes if isinstance(n, int) else list(n) for n in (
        kernel_size, kernel_size if stride is None else stride, padding))
    spatial = input.shape[-axes:]
    result = [(n - 1) * step[i] - 2 * pad[i] + size[i] for i, n in enumerate(spatial)] if output_size is None else (
        list(output_size)[-axes:])
    head, count = input.shape[:-axes], _math.prod(spatial)
    zeros = _core.zeros([*head, _math.prod(result)], dtype=input.dtype, device=input.device)
    y = _core.scatter(zeros, -1, indices.reshape([*head, count]), input.reshape([*head, count]))
    return y.reshape([*head, *result])


def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None,
                recompute_scale_factor=None, antialias=False) -> Tensor:
    """The spatial axes resized: mode is 'nearest', 'linear', 'bilinear', 'trilinear' or 'area'."""
    if mode in ("bicubic", "nearest-exact") or antialias:
        raise _core.UnsupportedError(f"interpolate has no {'antialias' if antialias else repr(mode)} yet")
    axes = input.ndim - 2
    if scale_factor is not None and not isinstance(scale_factor, (int, float)):
        scales = list(scale_factor)
        if len(set(scales)) == 1:
            scale_factor = scales[0]
        elif recompute_scale_factor:
            size = [int(_math.floor(n * s)) for n, s in zip(input.shape[2:], scales)]
            scale_factor = None
        else:
            return _scaled_by_axis(input, scales, mode, bool(align_corners))
    if recompute_scale_factor and scale_factor is not None:
        size = [int(_math.floor(n * scale_factor)) for n in input.shape[2:]]
        scale_factor = None
    if mode == "area":
        if size is None:
            size = [int(_math.floor(n * scale_factor)) for n in input.shape[2:]]
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[axes - 1](input, size)
    linear_mode = {1: "linear", 2: "bilinear", 3: "trilinear"}.get(axes)
    if mode not in ("nearest", linear_mode):
        raise _core.ArgumentError(f"mode is {mode!r}; for {input.ndim} dimensions it is 'nearest' or {linear_mode!r}")
    return _core.resize(input, size=size, scale=scale_factor, mode="nearest" if mode == "nearest" else "linear",
                        align_corners=bool(align_corners))


def upsample_nearest(input, size=None, scale_factor=None) -> Tensor:
    """interpolate with mode 'nearest'."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input, size=None, scale_factor=None) -> Tensor:
    """interpolate with mode 'bilinear' and align_corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def _scaled_by_axis(input, scales, mode, align_corners) -> Tensor:
    """Different factors for the axes: one axis after the other. Linear modes are products of those of the axes."""
    y = input
    for axis, scale in enumerate(scales, 2):
        rows = y.transpose(axis, -1)
        flat = rows.reshape(1, -1, rows.shape[-1])
        flat = interpolate(flat, None, scale, "linear" if "linear" in mode else mode,
                           align_corners if "linear" in mode else None)
        y = flat.reshape(*rows.shape[:-1], flat.shape[-1]).transpose(axis, -1)
    return y


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None) -> Tensor:
    """The same as interpolate."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def pad(input, pad, mode="constant", value=None) -> Tensor:
    """Elements added at both ends of the last axes: (left, right, top, bottom, ...)."""
    return _core.pad(input, pad, mode, value or 0)


def _check_windows(*sizes) -> None:
    if min(sizes) < 1:
        raise _core.ArgumentError("kernel_size, dilation and stride must be at least 1")


def unfold(input, kernel_size, dilation=1, padding=0, stride=1) -> Tensor:
    """The windows of (N,C,H,W) as columns: (N, C * window, number of windows)."""
    (kh, kw), (dh, dw), (ph, pw), (sh, sw) = (
        (o, o) if isinstance(o, int) else tuple(o) for o in (kernel_size, dilation, padding, stride))
    _check_windows(kh, kw, dh, dw, sh, sw)
    x = input.unsqueeze(0) if input.ndim == 3 else input
    x = _core.pad(x, [pw, pw, ph, ph]) if ph or pw else x
    n, c, h, w = x.shape
    rows, columns = (h - dh * (kh - 1) - 1) // sh + 1, (w - dw * (kw - 1) - 1) // sw + 1
    number = lambda n: _core.arange(0, n, dtype=_core.int64, device=x.device)  # noqa: E731
    top = (number(kh) * dh).reshape(kh, 1, 1, 1) + (number(rows) * sh).reshape(1, 1, rows, 1)
    left = (number(kw) * dw).reshape(1, kw, 1, 1) + (number(columns) * sw).reshape(1, 1, 1, columns)
    places = (top * w + left).reshape(-1)
    y = _core.index_select(x.reshape(n, c, h * w), 2, places).reshape(n, c * kh * kw, rows * columns)
    return y.squeeze(0) if input.ndim == 3 else y


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1) -> Tensor:
    """The sum of windows that unfold has taken apart: (N,C,H,W)."""
    (oh, ow), (kh, kw), (dh, dw), (ph, pw), (sh, sw) = (
        (o, o) if isinstance(o, int) else tuple(o) for o in (output_size, kernel_size, dilation, padding, stride))
    _check_windows(kh, kw, dh, dw, sh, sw)
    x = input.unsqueeze(0) if input.ndim == 2 else input
    h, w = oh + 2 * ph, ow + 2 * pw
    rows, columns = (h - dh * (kh - 1) - 1) // sh + 1, (w - dw * (kw - 1) - 1) // sw + 1
    n, c = x.shape[0], x.shape[1] // (kh * kw)
    number = lambda n: _core.arange(0, n, dtype=_core.int64, device=x.device)  # noqa: E731
    top = (number(kh) * dh).reshape(kh, 1, 1, 1) + (number(rows) * sh).reshape(1, 1, rows, 1)
    left = (number(kw) * dw).reshape(1, kw, 1, 1) + (number(columns) * sw).reshape(1, 1, 1, columns)
    places = (top * w + left).reshape(-1)
    y = _core.index_add(_core.zeros((n, c, h * w), dtype=x.dtype, device=x.device), 2, places, x.reshape(n, c, -1))
    y = y.reshape(n, c, h, w)[:, :, ph:ph + oh, pw:pw + ow]
    return y.squeeze(0) if input.ndim == 2 else y


def pixel_shuffle(input, upscale_factor) -> Tensor:
    """Channels become pixels: (..., C r r, H, W) gives (..., C, H r, W r)."""
    r, head, (c, h, w) = upscale_factor, input.shape[:-3], input.shape[-3:]
    n = len(head)
    y = input.reshape(head + (c // (r * r), r, r, h, w))
    y = _core.permute_dims(y, list(range(n)) + [n, n + 3, n + 1, n + 4, n + 2])
    return y.reshape(head + (c // (r * r), h * r, w * r))


def pixel_unshuffle(input, downscale_factor) -> Tensor:
    """Pixels become channels: (..., C, H r, W r) gives (..., C r r, H, W)."""
    r, head, (c, h, w) = downscale_factor, input.shape[:-3], input.shape[-3:]
    n = len(head)
    y = input.reshape(head + (c, h // r, r, w // r, r))
    y = _core.permute_dims(y, list(range(n)) + [n, n + 2, n + 4, n + 1, n + 3])
    return y.reshape(head + (c * r * r, h // r, w // r))


def channel_shuffle(input, groups) -> Tensor:
    """Channels of all groups taken in turn."""
    n, c, *rest = input.shape
    return input.reshape(n, groups, c // groups, *rest).transpose(1, 2).reshape(input.shape)


def embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean",
                  sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None) -> Tensor:
    """The mean, the sum or the maximum of the rows of each bag: indices (bags, n), or (n) with the offsets of the bags."""
    if max_norm is not None or scale_grad_by_freq:
        raise _core.UnsupportedError("embedding_bag has no max_norm and scale_grad_by_freq")
    if mode not in ("mean", "sum", "max") or (per_sample_weights is not None and mode != "sum"):
        raise _core.ArgumentError(f"mode is {mode!r}; it is 'mean', 'sum' or 'max', and with per_sample_weights 'sum'")
    if offsets is None:
        count = input.shape[1]
        starts = list(range(0, input.numel() + 1, count)) if count else [0] * (input.shape[0] + 1)
    else:
        starts = [int(n) for n in offsets.tolist()] + ([] if include_last_offset else [input.numel()])
    flat = input.reshape(-1)
    rows = _core.embedding(flat, weight)
    keep = _core.ones(flat.shape, dtype=_core.bool, device=flat.device) if padding_idx is None else flat != padding_idx
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    bags = []
    for first, last in zip(starts, starts[1:]):
        kept = keep[first:last].unsqueeze(1)
        part, count = rows[first:last], last - first if padding_idx is None else int(_core.sum(kept.to(_core.int64)))
        if count == 0:
            bags.append(_core.zeros((1, weight.shape[1]), dtype=weight.dtype, device=weight.device))
        elif mode == "max":
            bags.append(_core.max(_core.where(kept, part, float("-inf")), 0, keepdims=True))
        else:
            total = _core.sum(_core.where(kept, part, 0), 0, keepdims=True)
            bags.append(total / count if mode == "mean" else total)
    return _core.cat(bags, 0)


# --- distances and products -----------------------------------------------------------------------


def one_hot(tensor, num_classes=-1) -> Tensor:
    """Vectors with a 1 where the number says."""
    if num_classes == -1:
        num_classes = int(_core.max(tensor)) + 1
    return _core.one_hot(tensor, num_classes)


def bilinear(input1, input2, weight, bias=None) -> Tensor:
    """x1 W x2 for each matrix of weight, plus the bias."""
    y = _core.einsum("...i,oij,...j->...o", [input1, weight, input2])
    return y if bias is None else y + bias


def cosine_similarity(x1, x2, dim=1, eps=1e-8) -> Tensor:
    """The cosine of the angle between vectors."""
    a, b = (_core.clamp(_core.norm(x, 2, dim, True), min=eps) for x in (x1, x2))
    return _core.sum(x1 / a * (x2 / b), dim)


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False) -> Tensor:
    """The distance of each row of x1 from that of x2."""
    return _core.norm(x1 - x2 + eps, p, -1, keepdim)


def pdist(input, p=2.0) -> Tensor:
    """The distances of all pairs of rows."""
    n = input.shape[0]
    places = [i * n + k for i in range(n) for k in range(i + 1, n)]
    at = _core.tensor(places, dtype=_core.int64, device=input.device)
    rows, columns = _core.floor_divide(at, n), _core.remainder(at, n)
    return _core.norm(_core.index_select(input, 0, rows) - _core.index_select(input, 0, columns), p, -1)


# --- losses ---------------------------------------------------------------------------------------


def _reduced(loss, reduction) -> Tensor:
    if reduction == "mean":
        return _core.mean(loss)
    if reduction == "sum":
        return _core.sum(loss)
    if reduction != "none":
        raise _core.ArgumentError(f"reduction is {reduction!r}; it is 'none', 'mean' or 'sum'")
    return loss


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean") -> Tensor:
    """The negative log-likelihood of targets under normal distributions."""
    if not isinstance(var, Tensor):
        var = _core.full_like(input, var)
    if var.shape != input.shape and var.ndim == input.ndim - 1:
        var = var.unsqueeze(-1)
    bounded = var + (_core.clamp(var, min=eps) - var).detach()
    loss = 0.5 * (_core.log(bounded) + (input - target) ** 2 / bounded)
    return _reduced(loss + 0.5 * _math.log(2 * _math.pi) if full else loss, reduction)


def poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None,
                     reduction="mean") -> Tensor:
    """The negative log-likelihood of counts under Poisson distributions."""
    loss = _core.exp(input) - target * input if log_input else input - target * _core.log(input + eps)
    if full:
        more = target * _core.log(target) - target + 0.5 * _core.log(2 * _math.pi * target)
        loss = loss + _core.where(target > 1, more, 0)
    return _reduced(loss, reduction)


def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean") -> Tensor:
    """log(1 + exp(-target * x)), for targets 1 and -1."""
    return _reduced(_core.softplus(-target * input), reduction)


def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean") -> Tensor:
    """The mean of binary cross-entropies over the classes."""
    loss = -(target * _core.logsigmoid(input) + (1 - target) * _core.logsigmoid(-input))
    return _reduced(_core.mean(loss if weight is None else loss * weight, -1), reduction)


def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None,
                      reduction="mean") -> Tensor:
    """The hinge loss of several classes."""
    x, at = (input.unsqueeze(0), target.reshape(1)) if input.ndim == 1 else (input, target)
    right = _core.gather(x, 1, at.unsqueeze(1))
    loss = _core.clamp(margin - right + x, min=0) ** p
    if weight is not None:
        loss = loss * weight[at].unsqueeze(1)
    loss = loss * (1 - _core.one_hot(at, x.shape[1]).to(x.dtype))
    loss = _core.sum(loss, 1) / x.shape[1]
    return _reduced(loss.squeeze(0) if input.ndim == 1 and reduction == "none" else loss, reduction)


def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean") -> Tensor:
    """The hinge loss of several labels: a row of target lists the labels, up to the first -1."""
    x, at = (input.unsqueeze(0), target.unsqueeze(0)) if input.ndim == 1 else (input, target)
    valid = _core.cumprod((at >= 0).to(_core.int64), 1)
    labels = _core.where(valid > 0, at, 0)
    marks = _core.zeros(x.shape, dtype=_core.int64, device=x.device)
    is_label = (_core.scatter_add(marks, 1, labels, valid) > 0).to(x.dtype)
    right = _core.gather(x, 1, labels)
    hinge = _core.clamp(1 - right.unsqueeze(2) + x.unsqueeze(1), min=0)
    loss = hinge * valid.to(x.dtype).unsqueeze(2) * (1 - is_label).unsqueeze(1)
    loss = _core.sum(loss, [1, 2]) / x.shape[1]
    return _reduced(loss.squeeze(0) if input.ndim == 1 and reduction == "none" else loss, reduction)


def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None,
                        reduce=None, reduction="mean") -> Tensor:
    """How much nearer than by margin the anchor should be to positive than to negative."""
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = _core.minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduced(_core.clamp(near - far + margin, min=0), reduction)


def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False,
                                      reduction="mean") -> Tensor:
    """triplet_margin_loss with another distance."""
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = _core.minimum(far, distance(positive, negative))
    return _reduced(_core.clamp(near - far + margin, min=0), reduction)


def _in_place(name) -> Callable[..., Tensor]:
    function = getattr(_core, name)

    def written(input, *args, **names) -> Tensor:
        return function(input, *args, inplace=True, **names)

    written.__name__, written.__doc__ = name + "_", function.__doc__
    return written


def rrelu_(input, lower=1.0 / 8, upper=1.0 / 3, training=False) -> Tensor:
    """rrelu, written into the input."""
    return rrelu(input, lower, upper, training, True)


def threshold_(input, threshold, value) -> Tensor:
    """threshold, written into the input."""
    return input.copy_(_core.threshold(input, threshold, value))


def _with_indices(pool) -> Callable[..., Any]:
    def both(input, *args, return_indices=True, **names) -> Any:
        return pool(input, *args, return_indices=True, **names)

    both.__name__, both.__doc__ = pool.__name__ + "_with_indices", pool.__doc__
    return both


max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = map(
    _with_indices, (max_pool1d, max_pool2d, max_pool3d))
adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = map(
    _with_indices, (adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d))

relu_, elu_, celu_, selu_, leaky_relu_, hardtanh_ = (
    _in_place(name) for name in ("relu", "elu", "celu", "selu", "leaky_relu", "hardtanh"))
