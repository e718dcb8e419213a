"""Modes that are on for a block or a function: ``with no_grad(): ...`` and ``@no_grad()``."""
from __future__ import annotations

from gradus import _core

TYPE_CHECKING = False  # typing takes longer to import than all of gradus
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["autocast", "enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]


class _GradMode:
    """Switches the tape on or off for a block, or for each call of a function that it decorates."""

    def __init__(self, on: bool) -> None:
        self._on = on
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before.append(_core._grad_mode(self._on))

    def __exit__(self, *failure: object) -> None:
        _core._grad_mode_end(self._before.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import functools

        @functools.wraps(function)
        def wrapped(*args: Any, **names: Any) -> Any:
            with _GradMode(self._on):
                return function(*args, **names)

        return wrapped


class no_grad(_GradMode):
    """For a block or a function: the tape records no ops."""

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        self = super().__new__(cls)
        if function is None:
            return self
        self.__init__()
        return self(function)  # @no_grad without parentheses

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        super().__init__(False)


class inference_mode(no_grad):
    """The same as no_grad."""

    def __init__(self, mode: bool = True) -> None:
        _GradMode.__init__(self, not mode if isinstance(mode, bool) else False)


class enable_grad(_GradMode):
    """For a block or a function: the tape records ops again."""

    def __init__(self) -> None:
        super().__init__(True)


class set_grad_enabled(_GradMode):
    """For a block: the tape records ops if `mode` is true."""

    def __init__(self, mode: bool) -> None:
        super().__init__(bool(mode))


class autocast:
    """For a block or a function: products and convolutions in bfloat16 or float16, what needs digits in float32."""

    def __init__(self, dtype: Any = "bfloat16", enabled: bool = True) -> None:
        if isinstance(dtype, str) and dtype.split(":")[0] in ("cpu", "cuda", "opencl"):
            dtype = "bfloat16"  # PyTorch's first argument is the kind of device; here it is that of the tensors
        self._dtype = dtype if enabled else None
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before.append(_core._autocast_begin(self._dtype))

    def __exit__(self, *failure: object) -> None:
        _core._autocast_end(self._before.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import functools

        @functools.wraps(function)
        def wrapped(*args: Any, **names: Any) -> Any:
            with autocast(self._dtype, self._dtype is not None):
                return function(*args, **names)

        return wrapped
