"""gradus.jit: functions that run as plans."""
from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from gradus import _core

__all__ = ["Jit", "jit"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_MOST_NOTES = 64


class Jit(_core.Jit, Generic[_P, _R]):
    """A function that runs as a plan, as gradus.jit returns it.

    A call with tensors of new shapes, or with other static arguments, traces the function: calls it once with symbols
    and makes a plan of the ops. Later calls run the plan.
    """

    def __init__(self, function: Callable[_P, _R], level: int = 2, plans: int = 32) -> None:
        super().__init__(function, level, plans, False)
        self._options = level, plans
        self._notes: list[_Note] = []
        self._methods: dict[int, tuple[Any, Jit[..., Any]]] = {}
        self._owner: Callable[[], Any] | None = None
        self.__wrapped__ = function
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            if hasattr(function, name):
                setattr(self, name, getattr(function, name))

    if TYPE_CHECKING:
        __qualname__: str

        def __call__(self, *args: _P.args, **names: _P.kwargs) -> _R: ...

    def __repr__(self) -> str:
        return f"<jit of {getattr(self.__wrapped__, '__qualname__', self.__wrapped__)}>"

    def __reduce__(self) -> str:  # as functions: by their name
        return str(self.__qualname__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Jit[_P, _R]:
        return self

    # --- methods ------------------------------------------------------------------------------

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """In a class: each object has plans of its own."""
        if instance is None:
            return self
        known = self._methods.get(id(instance))
        if known is None:
            known = self._methods[id(instance)] = self._bind(instance)
        return types.MethodType(known[1], instance)

    def _bind(self, instance: Any) -> tuple[Any, Jit[..., Any]]:
        key, methods = id(instance), self._methods
        try:
            holder: Any = weakref.ref(instance, lambda _: methods.pop(key, None))
        except TypeError:
            raise TypeError(f"plans of a method need objects with weak references: add '__weakref__' to the __slots__ "
                            f"of {type(instance).__name__}") from None
        bound: Jit[..., Any] = Jit.__new__(type(self))
        _core.Jit.__init__(bound, self.__wrapped__, *self._options, True)
        bound.__dict__.update(self.__dict__, _notes=[], _methods={}, _owner=holder)
        return holder, bound

    # --- what it did --------------------------------------------------------------------------

    def plan(self, *args: Any, **names: Any) -> str:
        """The plan of a call with these arguments as text, one line for each step. The function does not run."""
        if self._owner is not None:
            args = (self._owner(), *args)
        return self._plan(*args, **names)

    def explain(self) -> list[str]:
        """Why the function was traced again, for each trace after the first: what differs from the nearest one before."""
        return [note.why for note in self._notes if note.why]

    def _note(self, args: tuple[Any, ...], names: dict[str, Any] | None, difference: str | None) -> None:
        """A new trace; called by the library with the arguments of the trace."""
        note = _Note(self.traces)
        for name, value in _named(self.__wrapped__, args, names or {}).items():
            _describe(name, value, note.arguments)
        if self._notes:
            note.why = self._reason(note.arguments, difference)
        self._notes.append(note)
        del self._notes[:-_MOST_NOTES]

    def _reason(self, arguments: dict[str, str], difference: str | None) -> str:
        nearest = min((_differences(arguments, note.arguments) for note in reversed(self._notes)), key=len)
        if nearest:
            return "; ".join(nearest)
        if not any(self._keeps(note.number) for note in self._notes if note.arguments == arguments):
            plans = self._options[1]
            if sum(self._keeps(note.number) for note in self._notes) < min(plans, _MOST_NOTES):
                return "a tensor that the function uses was replaced: it has another dtype or device"
            return f"its plan was dropped: there are more sets of shapes and arguments than plans={plans}"
        if difference is None or difference == "the key is another one":
            return "the same arguments were given by name instead of by position, or the other way round"
        return difference


class _Note:
    """What is known about a trace: its number, the arguments as texts, and why it was made."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.arguments: dict[str, str] = {}
        self.why = ""


def _named(function: Any, args: tuple[Any, ...], names: dict[str, Any]) -> dict[str, Any]:
    """The arguments by the names of the function's parameters."""
    import inspect

    try:
        bound = inspect.signature(function).bind(*args, **names)
    except (TypeError, ValueError):
        return {**{str(i): value for i, value in enumerate(args)}, **names}
    return dict(bound.arguments)


def _describe(name: str, value: Any, found: dict[str, str]) -> None:
    if isinstance(value, _core.Tensor):
        found[name] = f"shape {value.shape}, dtype {value.dtype}, on {value.device}"
    elif isinstance(value, dict):
        found[name] = f"a dict of {len(value)}"
        for key, part in value.items():
            _describe(f"{name}[{key!r}]", part, found)
    elif isinstance(value, (tuple, list)):
        found[name] = f"a {type(value).__name__} of {len(value)}"
        for i, part in enumerate(value):
            _describe(f"{name}[{i}]", part, found)
    elif value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        found[name] = repr(value)[:80]
    else:
        found[name] = object.__repr__(value)[:80]


def _differences(now: dict[str, str], before: dict[str, str]) -> list[str]:
    texts = []
    for name in {**before, **now}:
        new, old = now.get(name, "not given"), before.get(name, "not given")
        if new == old:
            continue
        if new.startswith("shape (") and old.startswith("shape ("):
            news, olds = (dict(_parts(text)) for text in (new, old))
            for part in news:
                if news[part] != olds[part]:
                    texts.append(f"argument {name}: {part} {news[part]}, was {olds[part]}")
        else:
            texts.append(f"argument {name}: {new}, was {old}")
    return texts


def _parts(text: str) -> list[tuple[str, str]]:
    shape, _, rest = text.partition(", dtype ")
    dtype, _, device = rest.partition(", on ")
    return [("shape", shape[len("shape "):]), ("dtype", dtype), ("on", device)]


@overload
def jit(function: Callable[_P, _R], *, level: int = 2, plans: int = 32) -> Jit[_P, _R]: ...
@overload
def jit(*, level: int = 2, plans: int = 32) -> Callable[[Callable[_P, _R]], Jit[_P, _R]]: ...
def jit(function: Any = None, *, level: int = 2, plans: int = 32) -> Any:
    """Makes a function run as a plan: ``@gd.jit``, ``@gd.jit(level=0)`` or ``fast = gd.jit(f)``.

    The first call with tensors of new shapes traces the function: calls it once with symbols, and makes a plan of the
    ops that it records, with the backward pass and the optimizer's step if they are in it. Later calls run the plan.
    Arguments are tensors and arrays, also in nested tuples, lists and dicts; all others are static and compared by
    value. level: 0 gives the bits of eager ops, 2 fuses ops. plans: how many plans are kept.
    """
    if function is None:
        return lambda f: Jit(f, level, plans)
    return Jit(function, level, plans)
