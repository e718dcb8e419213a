"""Functions with their own backward, hooks, transforms of functions, and checks of gradients."""
from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from gradus import _core
from gradus._core import Tensor
from gradus._functions import grad as _grad
from gradus._modes import enable_grad, no_grad

__all__ = ["Function", "FunctionContext", "Handle", "gradcheck", "hessian", "hvp", "jacobian", "jvp", "recompute",
           "vjp"]


# --- functions with their own backward ---------------------------------------------------------


class FunctionContext:
    """The `ctx` of forward and backward: what forward leaves for backward."""

    needs_input_grad: tuple[bool, ...] = ()
    _saved: list[Tensor | None] = []
    _n_saved = 0
    _fixed: tuple[Tensor, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps tensors for backward, where saved_tensors has them."""
        self._saved = list(tensors)

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        return tuple(self._saved)

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """No gradient flows through these outputs."""
        self._fixed = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        raise _core.UnsupportedError("forward may not write its inputs: return a new tensor")

    def set_materialize_grads(self, value: bool) -> None:
        """Gradients of outputs that are not used are always zeros."""


class _Call(FunctionContext):
    """The context of one call, which the tape keeps."""

    def _run(self, function: type[Function], args: Sequence[Any], needs: Sequence[bool]) -> Any:
        """Calls forward. The outputs that are tensors and what is saved are in _call."""
        self._function, self._n_args = function, len(args)
        self._at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        self.needs_input_grad = tuple(needs)
        with no_grad():
            if function.setup_context is Function.setup_context:
                result = function.forward(self, *args)
            else:
                result = function.forward(*args)
                function.setup_context(self, args, result)
        self._single = not isinstance(result, (tuple, list))
        self._results = [result] if self._single else list(result)
        self._tensors = [i for i, y in enumerate(self._results) if isinstance(y, Tensor)]
        if not self._tensors:
            raise TypeError(f"{function.__name__}.forward must return a tensor, or a tuple of tensors")
        there = [t for t in self._saved if t is not None]
        self._mask, self._n_saved = [t is not None for t in self._saved], len(there)
        self._call: Any = [self._results[i] for i in self._tensors], there
        self._constant = [i for i in self._tensors if any(self._results[i] is t for t in self._fixed)]

    def _give(self, outputs: Sequence[Tensor]) -> Any:
        """The result of the call with these tensors in it."""
        results = list(self._results)
        for i, y in zip(self._tensors, outputs):
            results[i] = y.detach() if i in self._constant else y
        return results[0] if self._single else tuple(results)

    def _done(self) -> None:
        """The node of the tape holds what was saved, and knows when it may be freed."""
        for i in self._tensors:
            self._results[i] = None
        self._saved, self._fixed, self._call = [], (), None

    def _backward(self, gradients: list[Tensor], saved: list[Tensor], needs: list[bool]) -> list[Tensor | None]:
        """The gradients of the inputs that are tensors, from those of the outputs that are."""
        function, given = self._function, iter(saved)
        self._saved = [next(given) if there else None for there in self._mask]
        every: list[Tensor | None] = [None] * len(self._results)
        for i, g in zip(self._tensors, gradients):
            every[i] = g
        needed = [False] * self._n_args
        for i, n in zip(self._at, needs):
            needed[i] = n
        self.needs_input_grad = tuple(needed)
        try:
            result = function.backward(self, *every)
        finally:
            self._saved = []
        found = list(result) if isinstance(result, (tuple, list)) else [result]
        if len(found) > self._n_args and all(g is None for g in found[self._n_args:]):
            del found[self._n_args:]
        if len(found) != self._n_args:
            raise _core.ArgumentError(f"{function.__name__}.backward returned {len(found)} gradients for "
                                      f"{self._n_args} arguments of forward; return None for those without one")
        return [found[i] for i in self._at]


class _Recipe:
    """A call of a function in a graph: calls forward and backward with the values of each run."""

    def __init__(self, function: type[Function], description: Any) -> None:
        self._function, self._description = function, description
        self._latest: _Call | None = None

    def _make(self, tensors: list[Tensor], needs: Sequence[bool] = ()) -> _Call:
        args = _core._unflatten(self._description, tensors)
        call = _Call()
        call._run(self._function, args, needs or [
            isinstance(a, Tensor) and a.dtype.is_floating_point for a in args])  # a gradient may be asked for later
        return call

    def _forward(self, tensors: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        call = self._make(tensors)
        made: tuple[list[Tensor], list[Tensor]] = call._call
        call._done()
        self._latest, self._n_saved = call, call._n_saved
        return made

    def _backward(self, gradients: list[Tensor], saved: list[Tensor], needs: list[bool]) -> list[Tensor | None]:
        call = _Call()
        assert self._latest is not None
        call.__dict__.update(self._latest.__dict__)
        return call._backward(gradients, saved, needs)


_recipes: dict[Any, _Recipe] = {}


class Function:
    """A function with a backward of its own.

        class Square(gd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, grad):
                x, = ctx.saved_tensors
                return 2 * x * grad

        y = Square.apply(x)

    backward returns a gradient or None for each argument of forward. In a jit and in a graph both run with values in
    each run, and attributes of ctx may depend on shapes and on arguments that are no tensors only. If backward only
    calls ops, `backward_of_ops = True` lets a plan contain them.
    """

    backward_of_ops = False

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        raise NotImplementedError("a Function needs a static method forward(ctx, ...)")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> Any:
        """If a class has it, forward has no ctx."""

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError("a Function needs a static method backward(ctx, *gradients)")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Calls forward, and records backward on the tape."""
        tensors = [a for a in args if isinstance(a, Tensor)]
        if _core._is_tracing() or any(t.is_symbol for t in tensors):
            return cls._trace(args)
        call = _Call()
        call._run(cls, args, [isinstance(a, Tensor) and a.requires_grad for a in args])
        outputs = _core._apply(call, tensors, cls.__name__, len(call._tensors), False, cls.backward_of_ops)
        result = call._give(outputs)
        call._done()
        return result

    @classmethod
    def _trace(cls, args: tuple[Any, ...]) -> Any:
        description, tensors = _core._flatten(args)
        try:
            recipe = _recipes.setdefault((cls, description), _Recipe(cls, description))
        except TypeError:  # an argument is not hashable
            recipe = _Recipe(cls, description)
        n_out = len(recipe._latest._tensors) if recipe._latest else 1
        for _ in range(2):
            try:
                outputs = _core._apply(recipe, tensors, cls.__name__, n_out, True, cls.backward_of_ops)
                break
            except _core.StateError:  # the first call tells how many outputs there are
                if recipe._latest is None or len(recipe._latest._tensors) == n_out:
                    raise
                n_out = len(recipe._latest._tensors)
        assert recipe._latest is not None
        return recipe._latest._give(outputs)


# --- hooks -------------------------------------------------------------------------------------


class Handle:
    """Of a hook: remove() removes it."""

    def __init__(self, tensor: Tensor, holder: list[Any]) -> None:
        import weakref

        self._tensor, self._holder = weakref.ref(tensor), holder

    def remove(self) -> None:
        tensor = self._tensor()
        if tensor is not None and self._holder:
            _core._tensor_unhook(tensor, self._holder)
        elif self._holder:  # the tape still has the tensor, but the program has not
            self._holder[0] = lambda gradient: None
        self._holder = []

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *failure: object) -> None:
        self.remove()


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> Handle:
    """Each backward calls hook with the gradient of the tensor; what it returns is used instead, unless it is None."""
    if not callable(hook):
        raise TypeError("a hook must be a function")
    holder = [hook]
    _core._tensor_hook(self, holder)
    return Handle(self, holder)


def retain_grad(self: Tensor) -> None:
    """Makes backward keep the gradient of a tensor that is no leaf in grad."""
    import weakref

    if self.is_leaf:
        return
    known = weakref.ref(self)

    def keep(gradient: Tensor) -> None:
        x = known()
        if x is not None:
            x.grad = gradient.detach().clone() if x.grad is None else x.grad + gradient.detach()

    register_hook(self, keep)


# --- segments that are computed again ----------------------------------------------------------


def recompute(function: Callable[..., Any], *args: Any, **names: Any) -> Any:
    """Calls function and keeps only its arguments for backward, which calls it again: less memory for more time.

    It returns a tensor, or several of one dtype. Tensors that it uses beside its arguments get gradients, too.
    """
    description, tensors = _core._flatten((args, names))
    shapes: list[Any] = []

    def call(*given: Tensor) -> Tensor:
        positional, named = _core._unflatten(description, list(given))
        result = function(*positional, **named)
        if isinstance(result, Tensor):
            return result
        structure, found = _core._flatten(result)
        if not found:
            raise TypeError("the function of recompute must return tensors")
        if len({t.dtype for t in found}) > 1:
            raise _core.DtypeError("the function of recompute must return tensors of one dtype")
        shapes[:] = [structure, [t.shape for t in found]]
        return _core.cat([t.reshape(-1) for t in found])

    y = _core._recompute(call, list(tensors))
    if not shapes:
        return y
    structure, sizes = shapes
    parts, at = [], 0
    for size in sizes:
        count = 1
        for n in size:
            count *= n
        parts.append(y[at:at + count].reshape(size))
        at += count
    return _core._unflatten(structure, parts)


# --- transforms --------------------------------------------------------------------------------


def _leaves(inputs: Any) -> list[Tensor]:
    """The inputs as tensors that gradients can be asked for. What is on the tape stays on it."""
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    made = []
    for x in given:
        x = x if isinstance(x, Tensor) else _core.as_tensor(x)
        if not x.dtype.is_floating_point:
            raise _core.DtypeError(f"a derivative with respect to {x.dtype} does not exist; pass float tensors")
        made.append(x if x.is_symbol or x.requires_grad else x.detach().requires_grad_())
    return made


def _like(values: Any, tensors: list[Tensor], what: str) -> list[Tensor]:
    given = [values] if isinstance(values, Tensor) else list(values)
    if len(given) != len(tensors):
        raise _core.ArgumentError(f"{len(given)} {what} for {len(tensors)} tensors")
    for v, t in zip(given, tensors):
        if tuple(v.shape) != tuple(t.shape):
            raise _core.ShapeError(f"one of the {what} has the shape {v.shape}, and its tensor {t.shape}")
    return given


def _zero(g: Tensor | None, x: Tensor) -> Tensor:
    return _core.zeros_like(x) if g is None else g


def _depends(t: Tensor) -> bool:
    return t.is_symbol or t.requires_grad


def vjp(function: Callable[..., Any], *primals: Tensor) -> tuple[Any, Callable[..., tuple[Tensor, ...]]]:
    """The result of function(*primals), and a function of the result's cotangents that returns those of the primals."""
    leaves = _leaves(primals)
    with enable_grad():
        result = function(*leaves)
    structure, outputs = _core._flatten(result)

    def pull(*cotangents: Any) -> tuple[Tensor, ...]:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        v = _like(_core._flatten(given)[1], outputs, "cotangents")
        used = [(y, g) for y, g in zip(outputs, v) if _depends(y)]
        if not used:
            return tuple(_core.zeros_like(x) for x in leaves)
        found = _grad([y for y, _ in used], leaves, [g for _, g in used], True, False, True)
        return tuple(_zero(g, x) for g, x in zip(found, leaves))

    return _core._unflatten(structure, [y.detach() for y in outputs]), pull


def jvp(function: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """The result of function(*primals), and its derivative in the direction of the tangents."""
    leaves = _leaves(primals)
    directions = _like(tangents, leaves, "tangents")
    with enable_grad():
        result = function(*leaves)
        structure, outputs = _core._flatten(result)
        found = [_jvp_of(y, leaves, directions) for y in outputs]
    return _core._unflatten(structure, [y.detach() for y in outputs]), _core._unflatten(structure, found)


def _jvp_of(y: Tensor, leaves: list[Tensor], directions: list[Tensor]) -> Tensor:
    """The gradient g = J^T u is linear in u: the gradient of <g, v> with respect to u is J v."""
    if not _depends(y):
        return _core.zeros_like(y)
    u = _core.zeros_like(y)
    u = u if u.is_symbol else u.requires_grad_()
    g = _grad([y], leaves, [u], True, True, True)
    used = [(a, v) for a, v in zip(g, directions) if a is not None and _depends(a)]
    if not used:
        return _core.zeros_like(y)
    return _zero(_grad([a for a, _ in used], [u], [v for _, v in used], True, False, True)[0], y)


def _one_or_all(inputs: Any, found: list[Any]) -> Any:
    return found[0] if isinstance(inputs, Tensor) else tuple(found)


def jacobian(function: Callable[..., Any], inputs: Any, create_graph: bool = False) -> Any:
    """The Jacobian of function at inputs, a tensor or a tuple: its shape is the output's followed by the input's.

    For several inputs a tuple, for several outputs a tuple of those.
    """
    leaves = _leaves(inputs)
    with enable_grad():
        result = function(*leaves)
    outputs = [result] if isinstance(result, Tensor) else list(result)
    rows = [_one_or_all(inputs, _rows(y, leaves, create_graph)) for y in outputs]
    return rows[0] if isinstance(result, Tensor) else tuple(rows)


def _rows(y: Tensor, leaves: list[Tensor], create_graph: bool) -> list[Tensor]:
    if not _depends(y) or y.numel() == 0:
        return [_core.zeros(tuple(y.shape) + tuple(x.shape), dtype=x.dtype) for x in leaves]
    found: list[list[Tensor]] = [[] for _ in leaves]
    flat = y.reshape(-1)
    for i in builtins.range(y.numel()):
        with enable_grad():
            element = flat[i]
        for column, g, x in zip(found, _grad([element], leaves, None, True, create_graph, True), leaves):
            column.append(_zero(g, x))
    return [_core.stack(column).reshape(tuple(y.shape) + tuple(x.shape)) for column, x in zip(found, leaves)]


def hessian(function: Callable[..., Any], inputs: Any, create_graph: bool = False) -> Any:
    """The second derivatives of a function with one output element: its shape is the input's twice.

    For several inputs a tuple of tuples.
    """
    single = isinstance(inputs, Tensor)

    def gradient(*leaves: Tensor) -> Any:
        y = function(*leaves)
        if y.numel() != 1:
            raise _core.ShapeError(f"the function of a Hessian must return one element, not the shape {y.shape}")
        g = [_zero(g, x) for g, x in zip(_grad([y], leaves, None, True, True, True), leaves)]
        return g[0] if single else tuple(g)

    return jacobian(gradient, inputs, create_graph)


def hvp(function: Callable[..., Any], inputs: Any, vectors: Any) -> tuple[Tensor, Any]:
    """The result of a function with one output element, and its Hessian times the vectors."""
    leaves = _leaves(inputs)
    given = _like(vectors, leaves, "vectors")
    with enable_grad():
        y = function(*leaves)
        g = _grad([y], leaves, None, True, True, True) if _depends(y) else [None] * len(leaves)
    used = [(a, v) for a, v in zip(g, given) if a is not None and _depends(a)]
    found: Sequence[Tensor | None] = [None] * len(leaves)
    if used:
        found = _grad([a for a, _ in used], leaves, [v for _, v in used], True, False, True)
    return y.detach(), _one_or_all(inputs, [_zero(h, x) for h, x in zip(found, leaves)])


def gradcheck(function: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-6, rtol: float = 1e-4,
              second_order: bool = False) -> bool:
    """Compares gradients with finite differences in float64, for the inputs that require one.

    True, or an exception whose message names the input, the element and both numbers.
    """
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    with enable_grad():
        first = function(*given)
    count = 1 if isinstance(first, Tensor) else len(first)
    for k in builtins.range(count):
        def one(*x: Tensor, k: int = k) -> Any:
            result = function(*x)
            return result if isinstance(result, Tensor) else result[k]

        if not isinstance(first, Tensor) and not (isinstance(first[k], Tensor) and _depends(first[k])):
            continue
        _core._gradcheck(one, given, eps, rtol, atol, second_order)
    return True
