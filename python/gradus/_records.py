"""Classes and functions of records: layers, optimizers, datasets and so on, which the library defines."""
from __future__ import annotations

from typing import Any

from gradus import _core


class Records:
    """The records of one kind as attributes: classes that derive from `base`, made when they are first used."""

    def __init__(self, kind: str, base: type, module: str, doc: str = "") -> None:
        self._rows = _core._records(kind)
        self._base, self._module = base, module
        self._classes: dict[str, type] = {}
        self.names = {record: name for name, (record, _, _) in self._rows.items()}  # conv2d: Conv2d

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def __dir__(self) -> list[str]:
        return sorted(self._rows)

    def get(self, name: str) -> type:
        """The class of this name."""
        found = self._classes.get(name)
        if found is None:
            record, init, inputs = self._rows[name]
            namespace = {"__init__": init, "__module__": self._module, "__doc__": init.__doc__, "_record": record,
                         "_inputs": inputs, "__text_signature__": None}
            del namespace["__text_signature__"]
            found = self._classes[name] = type(name, (self._base,), namespace)
        return found

    def of_record(self, record: str) -> type | None:
        """The class of a record: of "conv2d"."""
        name = self.names.get(record)
        return self.get(name) if name else None


def functions(kind: str) -> dict[str, Any]:
    """The functions of a kind whose records create tensors."""
    return {name: function for name, (_, function, _) in _core._records(kind).items()}
