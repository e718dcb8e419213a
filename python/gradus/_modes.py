"""Modes that are on for a block or a function: ``with no_grad(): ...`` and ``@no_grad()``."""
from gradus import _core

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]


class _GradMode:
    """Switches the tape on or off for a block, or for each call of a function that it decorates."""

    def __init__(self, on, function=None):
        self._on = on
        self._before = []

    def __enter__(self):
        self._before.append(_core._grad_mode(self._on))

    def __exit__(self, *failure):
        _core._grad_mode_end(self._before.pop())

    def __call__(self, function):
        import functools

        @functools.wraps(function)
        def wrapped(*args, **names):
            with _GradMode(self._on):
                return function(*args, **names)

        return wrapped


class no_grad(_GradMode):
    """For a block or a function: the tape records no ops."""

    def __new__(cls, function=None):
        self = super().__new__(cls)
        if function is None:
            return self
        self.__init__()
        return self(function)  # @no_grad without parentheses

    def __init__(self, function=None):
        super().__init__(False)


class inference_mode(no_grad):
    """The same as no_grad."""

    def __init__(self, mode=True):
        _GradMode.__init__(self, not mode if isinstance(mode, bool) else False)


class enable_grad(_GradMode):
    """For a block or a function: the tape records ops again."""

    def __init__(self):
        super().__init__(True)


class set_grad_enabled(_GradMode):
    """For a block: the tape records ops if `mode` is true."""

    def __init__(self, mode):
        super().__init__(bool(mode))
