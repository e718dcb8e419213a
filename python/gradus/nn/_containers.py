"""Containers: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gradus import _core
from gradus._core import Tensor
from gradus.nn._module import Module, Parameter


def _call(module: Module, call: Any, inputs: tuple[Any, ...], names: dict[str, Any]) -> Any:
    """A call of a list or dict, which only a subclass with a forward has."""
    if not module._overrides:
        raise NotImplementedError(f"a {type(module).__name__} is not called; call its modules")
    return call(*inputs, **names)


class _Numbered(Module):
    """Modules that are called '0', '1' and so on."""

    _content = "list"

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        _core._module_init(self, self._content)
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> Any:
        """Adds a module at the end."""
        if self._content == "list" and self._overrides:  # of a subclass with a forward
            self._set_part("child", str(len(self)), module)
            return self
        known = self._is_loaded()
        self._note_part("child", str(_core._module_append(self, module)), module, known)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Adds modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Adds a module before number `index`."""
        rest = list(self)
        rest.insert(index, module)
        self._fill(rest)
        return self

    def pop(self, index: int = -1) -> Module:
        """Removes a module and returns it."""
        module: Module = self[index]
        del self[index]
        return module

    def _fill(self, modules: list[Module]) -> None:
        for name in self._names():
            delattr(self, name)
        self.extend(modules)

    def _number(self, index: int) -> str:
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"module number {index} of {n}")
        return self._names()[index]

    def _names(self) -> list[str]:
        """The names of the modules; a subclass may have parameters beside them."""
        return [name for name, kind in self._load().items() if kind == "child"]

    def __len__(self) -> int:
        return len(self._names())

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)._of(list(self)[index])
        return getattr(self, index if isinstance(index, str) else self._number(index.__index__()))

    def __setitem__(self, index: int, module: Module) -> None:
        self._set_part("child", self._number(index), module)

    def __delitem__(self, index: Any) -> None:
        rest = list(self)
        del rest[index]
        self._fill(rest)

    def __add__(self, other: Iterable[Module]) -> Any:
        return type(self)._of(list(self) + list(other))

    @classmethod
    def _of(cls, modules: list[Module]) -> Any:
        return cls(modules)


class ModuleList(_Numbered):
    """A list of modules, which the program calls one by one."""

    def __call__(self, *inputs: Any, **names: Any) -> Any:
        return _call(self, super().__call__, inputs, names)


class Sequential(_Numbered):
    """Modules one after the other: Sequential(a, b), or Sequential(OrderedDict(conv=a, fc=b))."""

    _content = "sequential"

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            self.extend(modules)

    @classmethod
    def _of(cls, modules: list[Module]) -> Any:
        return cls(*modules)


class ModuleDict(Module):
    """Modules by names, which the program calls one by one."""

    _content = "list"

    def __init__(self, modules: Any = None) -> None:
        _core._module_init(self, self._content)
        self.update(modules or {})

    def __call__(self, *inputs: Any, **names: Any) -> Any:
        return _call(self, super().__call__, inputs, names)

    def __getitem__(self, key: str) -> Module:
        if key not in self._load():
            raise KeyError(key)
        found: Module = self.__dict__[key]
        return found

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._load())

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __contains__(self, key: str) -> bool:
        return key in self._load()

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._load().keys()

    def values(self) -> list[Module]:
        """The modules."""
        return [self[key] for key in self]

    def items(self) -> list[tuple[str, Module]]:
        """The names and modules."""
        return [(key, self[key]) for key in self]

    def update(self, modules: Any) -> None:
        """Adds modules of a mapping, or of pairs."""
        for key, module in modules.items() if isinstance(modules, Mapping) or hasattr(modules, "items") else modules:
            self[key] = module

    def pop(self, key: str) -> Module:
        """Removes a module and returns it."""
        module = self[key]
        del self[key]
        return module

    def clear(self) -> None:
        """Removes all modules."""
        for key in list(self):
            del self[key]


def _as_parameter(value: Any) -> Parameter:
    return value if isinstance(value, Parameter) else Parameter(value)


class ParameterList(Module):
    """A list of parameters."""

    _content = "list"

    def __init__(self, values: Iterable[Any] = ()) -> None:
        _core._module_init(self, self._content)
        self.extend(values)

    def append(self, value: Any) -> ParameterList:
        """Adds a parameter at the end."""
        self._set_part("parameter", str(len(self)), _as_parameter(value))
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Adds parameters at the end."""
        for value in values:
            self.append(value)
        return self

    def _number(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise IndexError(f"parameter number {index} of {len(self)}")
        return str(index % len(self))

    def __len__(self) -> int:
        return len(self._load())

    def __iter__(self) -> Iterator[Tensor]:
        return iter([self[i] for i in range(len(self))])

    def __getitem__(self, index: int) -> Any:
        return getattr(self, self._number(index))

    def __setitem__(self, index: int, value: Any) -> None:
        self._set_part("parameter", self._number(index), _as_parameter(value))


class ParameterDict(ModuleDict):
    """Parameters by names."""

    def get(self, key: str, default: Any = None) -> Any:
        """The parameter of this name, or the default."""
        return self[key] if key in self else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The parameter of this name, which is the default if there was none."""
        if key not in self:
            self[key] = default
        return self[key]

    def popitem(self) -> tuple[str, Any]:
        """Removes the last parameter and returns its name and itself."""
        key = list(self)[-1]
        return key, self.pop(key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._set_part("parameter", key, _as_parameter(value))
