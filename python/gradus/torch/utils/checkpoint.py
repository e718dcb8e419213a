"""torch.utils.checkpoint: segments whose intermediate values are computed again in the backward pass."""
from __future__ import annotations

from gradus._autograd import recompute

__all__ = ["checkpoint", "checkpoint_sequential"]


def checkpoint(function, *args, use_reentrant=None, preserve_rng_state=True, **names):
    """Calls function and keeps only its arguments for backward, which calls it again."""
    for option in ("context_fn", "determinism_check", "debug", "early_stop"):
        names.pop(option, None)
    return recompute(function, *args, **names)


def checkpoint_sequential(functions, segments, input, use_reentrant=None, preserve_rng_state=True):
    """Calls modules one after the other, in so many segments of which only the inputs are kept."""
    modules = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = max(1, len(modules) // segments)
    for start in range(0, size * (segments - 1), size):
        input = checkpoint(_chain(modules[start:start + size]), input)
    return _chain(modules[size * (segments - 1):])(input)


def _chain(modules):
    def run(x):
        for module in modules:
            x = module(x)
        return x

    return run
