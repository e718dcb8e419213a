"""gradus.optim: optimizers with PyTorch's names, arguments and param_groups.

    opt = gd.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    opt.zero_grad()
    loss.backward()
    opt.step()

An optimizer of a module, gd.optim.SGD(net, lr=0.1), takes in parameters that the module gets later, too.
docs/reference/optimizers.md has all of them.
"""
from __future__ import annotations

from typing import Any

from gradus import _core
from gradus._records import Records as _Records
from gradus.optim._optimizer import Optimizer as Optimizer, ParamGroup as ParamGroup
from gradus.optim._optimizer import with_groups as _with_groups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gradus.optim import lr_scheduler as lr_scheduler
    from collections.abc import Sequence as _Sequence

    from gradus.optim._constructors import Adadelta as Adadelta, Adagrad as Adagrad, RMSprop as RMSprop, SGD as SGD

    class Adam(Optimizer):
        def __init__(self, params: Any, lr: float = ..., betas: _Sequence[float] = ..., eps: float = ...,
                     weight_decay: float = ..., amsgrad: bool = ..., *, maximize: bool = ...) -> None: ...

    class AdamW(Optimizer):
        def __init__(self, params: Any, lr: float = ..., betas: _Sequence[float] = ..., eps: float = ...,
                     weight_decay: float = ..., amsgrad: bool = ..., *, maximize: bool = ...) -> None: ...

_optimizers = _Records("optimizer", Optimizer, "gradus.optim")


def _class_for(record: str) -> type:
    """The class for an optimizer that the library has created."""
    name = _optimizers.names.get(record)
    return globals().get(name) or _find(name) if name else Optimizer


def _find(name: str) -> type:
    """A class of a record, which stays an attribute of the module."""
    found = globals()[name] = _with_groups(_optimizers.get(name))
    return found


_core._set_finder(_core.Optimizer, _class_for)

if not TYPE_CHECKING:

    def __getattr__(name):
        if name in _optimizers:
            return _find(name)
        if name == "lr_scheduler":
            import importlib

            return importlib.import_module("gradus.optim.lr_scheduler")
        raise AttributeError(f"module 'gradus.optim' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(dir(_optimizers)) | {"lr_scheduler"})
