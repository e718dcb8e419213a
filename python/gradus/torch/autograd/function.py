"""torch.autograd.function: functions with their own backward."""
from __future__ import annotations

import functools

from gradus._autograd import Function as Function, FunctionContext as FunctionCtx
from gradus._modes import no_grad

__all__ = ["Function", "FunctionCtx", "once_differentiable"]


def once_differentiable(backward):
    """Of a backward: its gradients have no gradients."""

    @functools.wraps(backward)
    def wrapped(ctx, *gradients):
        with no_grad():
            return backward(ctx, *gradients)

    return wrapped
