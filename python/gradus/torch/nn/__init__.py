"""torch.nn: functions of networks."""
from __future__ import annotations

from gradus.torch.nn import functional as functional

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def __getattr__(name) -> Any:
    if name == "grad":
        import importlib

        return importlib.import_module("gradus.torch.nn.grad")
    raise AttributeError(f"module 'gradus.torch.nn' has no attribute '{name}'")
