"""gradus.zoo: complete networks.

    net = gd.zoo.resnet18(num_classes=10)

They are the library's; docs/reference/zoo.md has all of them.
"""
from __future__ import annotations

import functools as _functools

from gradus import nn as _nn
from gradus._records import Records as _Records

_records = _Records("net", _nn.Module, "gradus.zoo")


def _with_arguments(cls):
    """Notes the arguments, for repr() and pickle."""
    init = cls.__init__

    @_functools.wraps(init)
    def __init__(self, *args, **names):
        init(self, *args, **names)
        self.__dict__["_arguments"] = (args, names)

    cls._library_init, cls.__init__ = init, __init__
    return cls


def __getattr__(name):
    if name not in _records:
        raise AttributeError(f"module 'gradus.zoo' has no attribute '{name}'")
    found = globals()[name] = _with_arguments(_records.get(name))
    return found


def __dir__() -> list[str]:
    return sorted(_records.names.values())
