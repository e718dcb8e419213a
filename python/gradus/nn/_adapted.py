"""Layers of the library that are called with other arguments than theirs."""
from __future__ import annotations

from typing import Any

from gradus import _core
from gradus.nn._module import Module


class Adapted(Module):
    """A layer whose arguments and results have PyTorch's form in Python. The library calls it with its own inputs, so
    that it can stand anywhere in a tree: in a Sequential, too."""

    def _flat(self, *args: Any, **names: Any) -> tuple[Any, ...]:
        """The inputs of the library's layer."""
        raise NotImplementedError

    def _results(self, outputs: Any) -> Any:
        """What a call returns for its outputs."""
        return outputs

    def __call__(self, *args: Any, **names: Any) -> Any:
        if _core._module_is_python(self):  # a subclass has a forward of its own
            return super().__call__(*args, **names)
        return self._results(super().__call__(*self._flat(*args, **names)))

    def forward(self, *args: Any, **names: Any) -> Any:
        return self._results(_core._module_forward(self, *self._flat(*args, **names)))

    _overrides = False
