"""torch.nn.grad: gradients of convolutions by their input and by their weight."""
from __future__ import annotations

from gradus import _core
from gradus._functions import grad as _grad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gradus._core import Tensor


def _by(convolution, grad_output, input, weight, wanted, options) -> Tensor:
    x, w = (t if isinstance(t, _core.Tensor) else _core.zeros(t, dtype=grad_output.dtype, device=grad_output.device)
            for t in (input, weight))
    leaf = (x if wanted == "input" else w).detach().requires_grad_()
    y = convolution(leaf, w, None, *options) if wanted == "input" else convolution(x, leaf, None, *options)
    return _grad(y, leaf, grad_output, create_graph=grad_output.requires_grad or x.requires_grad or w.requires_grad)[0]


def _pair(name, convolution) -> Any:
    def by_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1) -> Tensor:
        return _by(convolution, grad_output, input_size, weight, "input", (stride, padding, dilation, groups))

    def by_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1) -> Tensor:
        return _by(convolution, grad_output, input, weight_size, "weight", (stride, padding, dilation, groups))

    by_input.__doc__ = f"The gradient of {name} by its input."
    by_weight.__doc__ = f"The gradient of {name} by its weight."
    by_input.__name__, by_weight.__name__ = name + "_input", name + "_weight"
    return by_input, by_weight


conv1d_input, conv1d_weight = _pair("conv1d", _core.conv1d)
conv2d_input, conv2d_weight = _pair("conv2d", _core.conv2d)
conv3d_input, conv3d_weight = _pair("conv3d", _core.conv3d)
