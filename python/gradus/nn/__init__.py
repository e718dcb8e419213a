"""gradus.nn: modules and layers with PyTorch's names and meanings.

    net = gd.nn.Sequential(gd.nn.Linear(784, 100), gd.nn.ReLU(), gd.nn.Linear(100, 10))

The layers are the library's; docs/reference/layers.md has all of them. A size that the first call tells is None:
gd.nn.Linear(None, 10).
"""
from __future__ import annotations

import functools as _functools
from typing import Any

from gradus import _core
from gradus._records import Records as _Records
from gradus.nn._containers import ModuleDict as ModuleDict, ModuleList as ModuleList
from gradus.nn._containers import ParameterDict as ParameterDict, ParameterList as ParameterList
from gradus.nn._containers import Sequential as Sequential
from gradus.nn._module import Module as Module, Parameter as Parameter

TYPE_CHECKING = False


def _with_arguments(cls: type) -> type:
    """Notes the arguments of a layer, for repr() and pickle."""
    init = cls.__init__

    @_functools.wraps(init)
    def __init__(self: Any, *args: Any, **names: Any) -> None:
        init(self, *args, **names)
        self.__dict__["_arguments"] = (args, names)

    cls._library_init = init  # type: ignore[attr-defined]
    cls.__init__ = __init__  # type: ignore[misc]
    return cls


_layers = _Records("layer", Module, "gradus.nn")
_nets = _Records("net", Module, "gradus.zoo")
_noted: set[str] = set()


def _layer(name: str) -> type:
    cls = _layers.get(name)
    if name not in _noted:
        _noted.add(name)
        _with_arguments(cls)
    return cls


def _class_for(record: str) -> type:
    """The class for a module that the library has created."""
    name = _layers.names.get(record)
    if name:
        return globals().get(name) or __getattr__(name)
    return {"sequential": Sequential, "list": ModuleList}.get(record, Module)


_core._set_finder(_core.Module, _class_for)

if not TYPE_CHECKING:

    def __getattr__(name):
        if name in _layers:
            found = globals()[name] = _layer(name)
            return found
        if name in ("functional", "init", "utils", "parameter", "modules"):
            import importlib

            return importlib.import_module("gradus.nn." + name)
        raise AttributeError(f"module 'gradus.nn' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(dir(_layers)))
