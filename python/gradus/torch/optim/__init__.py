"""torch.optim: optimizers and schedulers; they are those of gradus.optim."""
from __future__ import annotations

from gradus import optim as _optim
from gradus.torch.optim import lr_scheduler as lr_scheduler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gradus.optim import *
else:

    def __getattr__(name):
        if name.startswith("_"):
            raise AttributeError(f"module 'gradus.torch.optim' has no attribute '{name}'")
        found = globals()[name] = getattr(_optim, name)
        return found


def __dir__() -> list[str]:
    return sorted(set(globals()) | {name for name in dir(_optim) if not name.startswith("_")})
