"""torch.nn: modules, layers and functions of networks; they are those of gradus.nn."""
from __future__ import annotations

from gradus import nn as _nn
from gradus.torch.nn import functional as functional

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gradus.nn import *
else:

    def __getattr__(name):
        if name in ("grad", "init", "modules", "parameter", "utils"):
            import importlib

            return importlib.import_module("gradus.torch.nn." + name)
        if name.startswith("_"):
            raise AttributeError(f"module 'gradus.torch.nn' has no attribute '{name}'")
        found = globals()[name] = getattr(_nn, name)
        return found


def __dir__() -> list[str]:
    return sorted(set(globals()) | {name for name in dir(_nn) if not name.startswith("_")})
