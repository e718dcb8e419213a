"""Graphs and sessions, branches and loops, and ops that a program defines."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gradus import _core
from gradus._core import Tensor
from gradus._functions import grad as _grad

__all__ = ["Graph", "PlanMemory", "Session", "after", "call_op", "cond", "define_op", "foldl", "gradients", "minimize",
           "name_scope", "named", "placeholder", "scan", "variable", "while_loop"]


# --- graphs ------------------------------------------------------------------------------------


class _Block:
    """Something that is on for a block."""

    _kind = ""

    def _begin(self) -> int:
        raise NotImplementedError

    def __enter__(self) -> Any:
        self.__dict__.setdefault("_before", []).append(self._begin())
        return self

    def __exit__(self, *failure: object) -> None:
        _core._block_end(self._kind, self.__dict__["_before"].pop())


class Graph(_Block, _core.Graph):
    """Ops that are recorded now and run later, many times, by a Session.

        with gd.Graph() as graph:
            x = gd.placeholder((None, 3), name="x")
            w = gd.variable(gd.zeros(3), name="w")
            y = x @ w
        session = gd.Session(graph)
        session.run(y, {x: gd.ones(2, 3)})

    In the block ops are recorded and not run. Tensors with data that the graph uses are read in each run.
    """

    _kind = "graph"

    def __init__(self) -> None:
        _core._graph_init(self)

    def _begin(self) -> int:
        return _core._graph_begin(self)

    @property
    def variables(self) -> tuple[Tensor, ...]:
        """The trainable variables, in the order of their creation."""
        return _core._graph_variables(self)

    def find(self, name: str) -> Tensor:
        """A placeholder, a variable or another named symbol."""
        found = _core._graph_find(self, name)
        if found is None:
            raise KeyError(f"the graph has no symbol named {name!r}")
        return found

    def text(self) -> str:
        """One line for each node."""
        return _core._graph_text(self, False)

    def dot(self) -> str:
        """The graph as a diagram for Graphviz."""
        return _core._graph_text(self, True)


class name_scope(_Block):
    """For a block: names of symbols begin with name and a slash."""

    _kind = "name"

    def __init__(self, name: str) -> None:
        self._name = name

    def _begin(self) -> int:
        return _core._name_scope_begin(self._name)


class after(_Block):
    """For a block: its ops run only after these symbols, and fetching one of them runs the symbols, too."""

    _kind = "after"

    def __init__(self, *symbols: Tensor) -> None:
        self._symbols = list(symbols)

    def _begin(self) -> int:
        return _core._after_begin(self._symbols)


def placeholder(shape: Sequence[int | None], dtype: Any = None, name: str | None = None) -> Tensor:
    """A value that is fed in each run. Sizes that are not known are None."""
    return _core._placeholder(tuple(shape), dtype, name)


def variable(initial: Any, name: str | None = None, trainable: bool = True) -> Tensor:
    """A value that a session keeps between runs. initial is its first value: a tensor, or a symbol that each session
    computes once. trainable: it is among the variables of the graph."""
    return _core._variable(initial, name, trainable)


def named(symbol: Tensor, name: str) -> Tensor:
    """Gives a symbol a name, by which it can be fetched and fed."""
    return _core._named(symbol, name)


def gradients(outputs: Any, inputs: Any) -> tuple[Tensor, ...]:
    """The gradients of the sum of outputs with respect to each of inputs: symbols."""
    return _grad(outputs, inputs)


def minimize(optimizer: Any, loss: Tensor, *, clip_norm: float = 0.0, clip_value: float = 0.0, schedule: Any = None,
             loss_scale: Any = None) -> Tensor:
    """A symbol: a run that fetches it takes one step of the optimizer for this loss."""
    return _core._minimize(optimizer, loss, clip_norm, clip_value, schedule, loss_scale)


# --- sessions ----------------------------------------------------------------------------------


class PlanMemory(NamedTuple):
    """The memory of a plan in bytes."""

    peak_bytes: int
    variable_bytes: int
    fetch_bytes: int
    constant_bytes: int
    scratch_bytes: int
    live_bytes: int
    recomputed_steps: int
    at_least: bool


class Session(_core.Session):
    """Runs a graph, and holds the values of its variables on one device.

    level: 0 gives the bits of eager ops, 2 fuses ops. plans: how many plans are kept, each for the shapes of feeds and
    the fetches. memory_limit: the most bytes of one run; values are computed again instead of kept.
    """

    def __init__(self, graph: Graph, device: Any = None, *, level: int = 2, plans: int = 32, memory_limit: int = 0,
                 tf32: bool | None = None) -> None:
        _core._session_init(self, graph, device, level, plans, memory_limit, -1 if tf32 is None else int(tf32))
        self.graph = graph

    def run(self, fetches: Any, feeds: dict[Any, Any] | None = None) -> Any:
        """Computes the fetches: symbols or their names, also nested in tuples, lists and dicts.

        feeds gives values to symbols, by themselves or by their names.
        """
        structure, symbols = self._fetches(fetches)
        values = _core._session_run(self, "run", self._feeds(feeds), symbols)
        return _core._unflatten(structure, list(values))

    def plan(self, fetches: Any, feeds: dict[Any, Any] | None = None) -> str:
        """The plan of such a run as text, one line for each step."""
        text: str = _core._session_run(self, "plan", self._feeds(feeds), self._fetches(fetches)[1])
        return text

    def memory(self, fetches: Any, feeds: dict[Any, Any] | None = None) -> PlanMemory:
        """The memory of such a run."""
        return PlanMemory(*_core._session_run(self, "memory", self._feeds(feeds), self._fetches(fetches)[1]))

    def get(self, variable: Tensor | str) -> Tensor:
        """A copy of a variable's value."""
        return _core._session_get(self, self._symbol(variable))

    def set(self, variable: Tensor | str, value: Any) -> None:
        """Assigns a value to a variable."""
        _core._session_set(self, self._symbol(variable), value)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *failure: object) -> None:
        pass

    def _symbol(self, symbol: Any) -> Tensor:
        if isinstance(symbol, str):
            return self.graph.find(symbol)
        if not isinstance(symbol, Tensor):
            raise TypeError(f"a symbol or its name is expected, not {type(symbol).__name__}")
        return symbol

    def _feeds(self, feeds: dict[Any, Any] | None) -> list[Tensor]:
        given: list[Tensor] = []
        for symbol, value in (feeds or {}).items():
            symbol = self._symbol(symbol)
            if not isinstance(value, Tensor):
                value = _core.as_tensor(value, dtype=None if hasattr(value, "dtype") else symbol.dtype)
            given += symbol, value
        return given

    def _fetches(self, fetches: Any) -> tuple[Any, list[Tensor]]:
        return _core._flatten(_replaced(fetches, self._symbol))


def _replaced(tree: Any, function: Callable[[Any], Tensor]) -> Any:
    """The same structure with function(leaf) for each leaf."""
    if isinstance(tree, dict):
        return {key: _replaced(part, function) for key, part in tree.items()}
    if isinstance(tree, (tuple, list)):
        parts = [_replaced(part, function) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return function(tree)


# --- branches and loops ------------------------------------------------------------------------


def _tensors(tree: Any) -> tuple[Any, list[Tensor]]:
    """The structure and the tensors of a nested value, in which numbers and arrays count as tensors."""
    return _core._flatten(_replaced(tree, lambda x: x if isinstance(x, Tensor) else _core.as_tensor(x)))


class _Body:
    """A function of nested values as one of a list of tensors."""

    def __init__(self, function: Callable[..., Any], structure: Any, what: str, expected: Any = None) -> None:
        self._function, self._structure, self._what, self._expected = function, structure, what, expected
        self.result: Any = None

    def __call__(self, tensors: list[Tensor]) -> list[Tensor]:
        result = self._function(*_core._unflatten(self._structure, tensors))
        self.result, found = _tensors(result)
        if self._expected is not None and self.result != self._expected:
            raise TypeError(f"{self._what} must return a value of the structure that it gets")
        return found


def cond(predicate: Any, yes: Callable[..., Any], no: Callable[..., Any], *inputs: Any) -> Any:
    """yes(*inputs) if the predicate, a tensor of one element, is true, and otherwise no(*inputs). Only that one runs.

    Both return nested values of the same structure, shapes and dtypes. In a jit and in a graph the data of the run
    decide; gradients flow through both.
    """
    structure, tensors = _tensors(inputs)
    first, second = _Body(yes, structure, "yes"), _Body(no, structure, "no")
    condition = predicate if isinstance(predicate, Tensor) else _core.as_tensor(predicate)
    found = _core._control("cond", (first, second), [condition], tensors, 0)
    if first.result is not None and second.result is not None and first.result != second.result:
        raise TypeError("yes and no must return values of the same structure")
    return _core._unflatten(first.result if first.result is not None else second.result, list(found))


def while_loop(condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any,
               max_steps: int | None = None) -> Any:
    """Repeats state = body(state) while condition(state) is true, and returns the last state, a nested value."""
    structure, tensors = _tensors((state,))

    def step(value: Any) -> Any:
        return (body(value),)

    functions = _Body(condition, structure, "condition"), _Body(step, structure, "body", structure)
    found = _core._control("while", functions, tensors, [], -1 if max_steps is None else max_steps)
    return _core._unflatten(structure, list(found))[0]


def scan(body: Callable[[Any, Any], tuple[Any, Any]], state: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
    """Loops along axis 0 of all xs: body(state, x) returns the next state and a y.

    Returns the last state, and the ys stacked along axis 0. All of them are nested values; y may be None.
    """
    structure, tensors = _tensors((state,))
    one, over = _core._flatten(_replaced((xs,), lambda x: x if isinstance(x, Tensor) else _core.as_tensor(x)))
    n = len(tensors)
    y_structure: list[Any] = []

    def step(given: list[Tensor]) -> list[Tensor]:
        result = body(_core._unflatten(structure, given[:n])[0], _core._unflatten(one, given[n:])[0])
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError("the body of a scan must return (state, y); y may be None")
        kept, found = _tensors((result[0],))
        if kept != structure:
            raise TypeError("the body of a scan must return a state of the structure that it gets")
        if result[1] is None:
            y_structure[:] = [None]
            return found
        shape, ys = _tensors((result[1],))
        y_structure[:] = [shape]
        return found + ys

    found = _core._control("scan", (step,), tensors, over, int(reverse))
    last = _core._unflatten(structure, list(found[:n]))[0]
    if not y_structure or y_structure[0] is None:
        return last, None
    return last, _core._unflatten(y_structure[0], list(found[n:]))[0]


def foldl(step: Callable[[Any, Any], Any], initial: Any, xs: Any) -> Any:
    """The last state of a loop along axis 0 of all xs: state = step(state, x)."""
    return scan(lambda state, x: (step(state, x), None), initial, xs)[0]


# --- ops by name -------------------------------------------------------------------------------

_defined: dict[str, Callable[..., Any]] = {}


def define_op(record: str) -> Callable[..., Any]:
    """Makes an op of a record, and returns a function that calls it.

        swish = gd.define_op('''swish(x) -> y  elementwise float
            x times the sigmoid of beta x.
              beta float = 1
              y = x / (1 + exp(-beta*x))
        ''')
        swish(x, beta=2)

    Its gradients of any order follow from the expression; plans fuse it, as other elementwise ops.
    """
    import textwrap

    head, _, rest = record.strip().partition("\n")
    text = head.strip() + "\n" + textwrap.dedent(rest).rstrip() + "\n"
    known = _defined.get(text)
    if known is None:
        _core._op_define(text)
        known = _defined[text] = _op_function(head.split("(")[0].strip())
    return known


def call_op(name: str, *inputs: Any, **options: Any) -> Any:
    """Calls an op by its name: inputs in the record's order, options by name. Several outputs are a tuple."""
    return _op_function(name)(*inputs, **options)


def _op_function(name: str) -> Callable[..., Any]:
    inputs, attributes, outputs, doc = _core._op_info(name)
    names = [row[0] for row in inputs]
    variadic = bool(inputs) and inputs[-1][2]
    most = len(names) + len(attributes)

    def op(*args: Any, **options: Any) -> Any:
        x = list(args if variadic else args[:len(names)])
        for attribute, value in zip(attributes, () if variadic else args[len(names):]):
            if attribute[0] in options:
                raise TypeError(f"{name}() got the argument {attribute[0]!r} twice")
            options[attribute[0]] = value
        if len(args) > most and not variadic:
            raise TypeError(f"{name}() takes at most {most} arguments, not {len(args)}")
        for i, given in enumerate(names):
            if given in options:
                if i < len(x):
                    raise TypeError(f"{name}() got the argument {given!r} twice")
                x += [None] * (i - len(x)) + [options.pop(given)]
        for i, row in enumerate(inputs):
            if not (row[1] or row[2]) and (i >= len(x) or x[i] is None):
                raise TypeError(f"{name}() needs the argument {row[0]!r}")
        found = _core._op_call(name, x, options)
        return found[0] if outputs == 1 else found

    parts = [("*" if row[2] else "") + row[0] + ("=None" if row[1] else "") for row in inputs]
    parts += [a[0] if a[1] is None else f"{a[0]}={a[1]}" for a in attributes]
    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"{name}({', '.join(parts)})\n\n{doc}"
    return op
