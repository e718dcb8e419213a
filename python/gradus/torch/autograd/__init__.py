"""torch.autograd: gradients."""
from __future__ import annotations

from gradus._autograd import Function as Function, gradcheck as _gradcheck
from gradus._core import Tensor
from gradus._functions import grad as _grad
from gradus._modes import enable_grad, no_grad, set_grad_enabled
from gradus.torch.autograd import function as function, functional as functional

__all__ = [
    "Function", "backward", "enable_grad", "functional", "grad", "gradcheck", "gradgradcheck", "no_grad",
    "set_grad_enabled",
]


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True,
         allow_unused=None, is_grads_batched=False, materialize_grads=False) -> tuple[Tensor, ...]:
    """The gradients of the sum of outputs with respect to inputs, as a tuple."""
    if is_grads_batched:
        raise NotImplementedError("grad with is_grads_batched is not there")
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    found = _grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused)
    if not materialize_grads:
        return found
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    return tuple(x.new_zeros(x.shape) if g is None else g for g, x in zip(found, inputs))


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False) -> None:
    """Adds the gradients of the sum of tensors to all leaves that they depend on."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    given = [None] * len(tensors) if grad_tensors is None else (
        [grad_tensors] if isinstance(grad_tensors, Tensor) else list(grad_tensors))
    retain = create_graph if retain_graph is None else retain_graph
    for i, (t, g) in enumerate(zip(tensors, given)):
        t.backward(g, retain_graph=retain or i + 1 < len(tensors), create_graph=create_graph)


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=0.001, raise_exception=True, **unused) -> bool:
    """Compares gradients with finite differences, in float64."""
    return _checked(func, inputs, eps, atol, rtol, raise_exception, False)


def gradgradcheck(func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=0.001, raise_exception=True,
                  **unused) -> bool:
    """Compares gradients of gradients with finite differences, in float64."""
    return _checked(func, inputs, eps, atol, rtol, raise_exception, True)


def _checked(func, inputs, eps, atol, rtol, raise_exception, second_order):
    try:
        return _gradcheck(func, inputs, eps=eps, atol=atol, rtol=rtol, second_order=second_order)
    except (ValueError, RuntimeError):
        if raise_exception:
            raise
        return False
