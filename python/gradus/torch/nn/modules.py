"""torch.nn.modules: the classes of torch.nn."""
from __future__ import annotations

from gradus import nn as _nn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gradus.nn import *
else:

    def __getattr__(name):
        if name.startswith("_"):
            raise AttributeError(f"module 'gradus.torch.nn.modules' has no attribute '{name}'")
        return getattr(_nn, name)
