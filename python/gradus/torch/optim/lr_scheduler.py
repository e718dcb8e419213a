"""torch.optim.lr_scheduler: the schedulers of gradus.optim.lr_scheduler."""
from __future__ import annotations

from gradus.optim import lr_scheduler as _schedulers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gradus.optim.lr_scheduler import *
else:

    def __getattr__(name):
        if name.startswith("_"):
            raise AttributeError(f"module 'gradus.torch.optim.lr_scheduler' has no attribute '{name}'")
        found = globals()[name] = getattr(_schedulers, name)
        return found


def __dir__() -> list[str]:
    return sorted(set(globals()) | {name for name in dir(_schedulers) if not name.startswith("_")})
