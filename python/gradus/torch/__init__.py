"""PyTorch's names and meanings, for programs that move: ``import gradus.torch as torch``.

    import gradus.torch as torch
    import gradus.torch.nn.functional as F

    x = torch.randn(8, 3, requires_grad=True)
    values, indices = x.max(dim=1)
    loss = F.cross_entropy(x, indices)

Most functions are those of gradus. Different from the Python Array API standard are max, min, sort, std, var, nonzero,
take, meshgrid, equal and those with other names for their arguments.
"""
from __future__ import annotations

from gradus import _core

TYPE_CHECKING = False
if TYPE_CHECKING:  # a type checker keeps the first meaning of a name
    from gradus._torch_functions import *
    from gradus._torch_methods import *  # type: ignore[assignment]
    from gradus._core import *  # type: ignore[assignment]
else:  # and the interpreter the last
    from gradus._core import *  # noqa: F401,F403 (the functions of all ops)
    from gradus._torch_methods import *  # noqa: F401,F403 (functions that are methods, too)
    from gradus._torch_functions import *  # noqa: F401,F403
    del Graph, Jit, Session  # noqa: F821 (types behind those of gradus)
from gradus._core import __version__ as __version__
from gradus._functions import (
    can_cast as can_cast, finfo as finfo, from_numpy as from_numpy, iinfo as iinfo, is_tensor as is_tensor,
    result_type as result_type)
from gradus._modes import autocast as autocast, enable_grad as enable_grad, inference_mode as inference_mode
from gradus._modes import no_grad as no_grad
from gradus._nn_functions import (
    bilinear as bilinear, celu_ as celu_, channel_shuffle as channel_shuffle, cosine_similarity as cosine_similarity,
    dropout as dropout, hardshrink as hardshrink, max_pool1d as max_pool1d, max_pool2d as max_pool2d,
    max_pool3d as max_pool3d, pairwise_distance as pairwise_distance, pdist as pdist, pixel_shuffle as pixel_shuffle,
    pixel_unshuffle as pixel_unshuffle, poisson_nll_loss as poisson_nll_loss, prelu as prelu, relu_ as relu_,
    rrelu as rrelu, selu_ as selu_, threshold as threshold, triplet_margin_loss as triplet_margin_loss)


class set_grad_enabled:
    """The tape records ops if mode is true: from now on, or for a block."""

    def __init__(self, mode) -> None:
        self._before = _core._grad_mode(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *failure) -> None:
        _core._grad_mode_end(self._before)


from gradus.torch import autograd as autograd, cuda as cuda, linalg as linalg, nn as nn, utils as utils

float, double, half = _core.float32, _core.float64, _core.float16
long, int, bool = _core.int64, _core.int32, _core.bool
pi, e, inf = 3.141592653589793, 2.718281828459045, 1e999
nan = inf - inf
Size = tuple
strided, contiguous_format, preserve_format, channels_last = "strided", "contiguous", "preserve", "channels_last"

if not TYPE_CHECKING:

    def __getattr__(name):
        if name == "optim":
            import importlib

            return importlib.import_module("gradus.torch.optim")
        raise AttributeError(f"module 'gradus.torch' has no attribute '{name}'")


del TYPE_CHECKING, annotations
