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
if TYPE_CHECKING:  # a type checker keeps the first meaning of a name, the interpreter the last
    from gradus.torch._functions import *
    from gradus._torch_methods import *
from gradus._core import *  # noqa: F401,F403 (the functions of all ops)
from gradus._core import __version__ as __version__
from gradus._functions import (
    can_cast as can_cast, finfo as finfo, from_numpy as from_numpy, iinfo as iinfo, is_tensor as is_tensor,
    isin as isin, result_type as result_type)
from gradus._modes import *  # noqa: F401,F403

if not TYPE_CHECKING:
    from gradus._torch_methods import *  # noqa: F401,F403 (functions that are methods, too)
    from gradus.torch._functions import *  # noqa: F401,F403

from gradus.torch import autograd as autograd, cuda as cuda, linalg as linalg, nn as nn

float, double, half = _core.float32, _core.float64, _core.float16
long, int, bool = _core.int64, _core.int32, _core.bool
pi, e, inf = 3.141592653589793, 2.718281828459045, 1e999
nan = inf - inf
Size = tuple
strided, contiguous_format, preserve_format, channels_last = "strided", "contiguous", "preserve", "channels_last"

del TYPE_CHECKING, annotations
