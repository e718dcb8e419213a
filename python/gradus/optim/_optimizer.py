"""The base class of optimizers: parameter groups and state in PyTorch's form."""
from __future__ import annotations

import functools as _functools
import inspect as _inspect
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from gradus import _core
from gradus._core import Tensor
from gradus._modes import enable_grad
from gradus.optim import _own

# Arguments of classes that are other options of the record: PyTorch has a pair where the record has two numbers.
_RECORD_NAMES = {"betas": ("beta1", "beta2"), "initial_accumulator_value": ("initial_accumulator",)}
_IGNORED = frozenset(("foreach", "fused", "capturable"))  # how PyTorch computes; the result is the same


class ParamGroup(MutableMapping[str, Any]):
    """A group of parameters with its options, which can be read and changed: group["lr"] = 0.1."""

    def __init__(self, optimizer: Optimizer, index: int) -> None:
        self._optimizer, self._index = optimizer, index

    def __getitem__(self, name: str) -> Any:
        own = self._optimizer
        if name == "params":
            return _core._optimizer_params(own, self._index)
        if name == "lr":
            rate = _core._optimizer_lr(own, self._index)
            return rate if _core._is_tracing() else rate.item()
        if name in own._options:
            numbers = _core._optimizer_options(own, self._index)
            values = [numbers[part] for part in _RECORD_NAMES.get(name, (name,))]
            default = own._options[name]
            return tuple(values) if isinstance(default, tuple) else type(default)(values[0])
        return own._extra(self._index)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        own = self._optimizer
        if name == "params":
            raise _core.StateError("the parameters of a group cannot be replaced; add_param_group adds others")
        if name == "lr":
            if isinstance(value, Tensor):
                _core._optimizer_lr(own, self._index).copy_(value.detach())
            else:
                _core._optimizer_set_lr(own, float(value), self._index)
        elif name in own._options:
            if self[name] != value:
                _core._optimizer_set(own, _of_record({name: value}), self._index)
        else:
            own._extra(self._index)[name] = value

    def __delitem__(self, name: str) -> None:
        del self._optimizer._extra(self._index)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(["params", *self._optimizer._options, *self._optimizer._extra(self._index)])

    def __len__(self) -> int:
        return 1 + len(self._optimizer._options) + len(self._optimizer._extra(self._index))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ParamGroup) and other._optimizer is self._optimizer and other._index == self._index

    def __hash__(self) -> int:
        return hash((id(self._optimizer), self._index))

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{name!r}: {value!r}" for name, value in self.items()) + "}"


def _of_record(options: dict[str, Any]) -> dict[str, float]:
    """Options under the names of the record: betas as beta1 and beta2."""
    found = {}
    for name, value in options.items():
        parts = _RECORD_NAMES.get(name, (name,))
        values = value if len(parts) > 1 else (value,)
        if len(values) != len(parts):
            raise ValueError(f"{name} has {len(values)} numbers; it is a pair")
        for part, number in zip(parts, values):
            found[part] = number if isinstance(number, bool) else float(number)
    return found


class Optimizer(_core.Optimizer):
    """What all optimizers have. A program creates one of a class such as gd.optim.SGD, or defines its own in Python:

        class Signs(gd.optim.Optimizer):
            def __init__(self, params, lr=0.01):
                super().__init__(params, {"lr": lr})
            @gd.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is not None:
                            p -= group["lr"] * gd.sign(p.grad)

    Its groups are dicts, and self.state has a dict for each parameter.
    """

    _record: str | None = None
    _options: dict[str, Any] = {}  # of the class, with their defaults

    def __init__(self, params: Any = None, defaults: dict[str, Any] | None = None) -> None:
        if type(self) is Optimizer:
            raise TypeError("Optimizer is the base class; create a gd.optim.SGD, gd.optim.AdamW or another one")
        self._groups: list[Any] = []
        self._defaults = dict(defaults or {})
        self.state: Any = _own.State()
        for group in _own.groups_of(params):
            self.add_param_group(group)

    def _extra(self, group: int) -> dict[str, Any]:
        """What a program has stored in a group."""
        extras: dict[int, dict[str, Any]] = self.__dict__.setdefault("_extras", {})
        return extras.setdefault(group, {})

    @property
    def defaults(self) -> dict[str, Any]:
        """The options of the constructor, which groups have unless they have their own."""
        return dict(self.__dict__.get("_defaults", self._options))

    @property
    def param_groups(self) -> list[ParamGroup]:
        """The groups of parameters. Their options can be changed: for g in opt.param_groups: g["lr"] = 0.1."""
        own: list[ParamGroup] | None = self.__dict__.get("_groups")
        if own is not None:
            return own
        return [ParamGroup(self, i) for i in range(_core._optimizer_groups(self))]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates all parameters by their gradients. A closure computes the loss, which is returned."""
        if not _core._is_made(self):
            raise NotImplementedError(f"{type(self).__name__} has no function step")
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        _core._optimizer_step(self)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of all parameters, or sets them to 0."""
        if set_to_none and _core._is_made(self):
            _core._optimizer_zero_grad(self)
            return
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    p.grad.zero_()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with options of their own: {"params": ..., "lr": 0.01}."""
        if not _core._is_made(self):
            self._groups.append(_own.checked_group(self, {**self._defaults, **param_group}))
            return
        own, extra = self._split({**self.defaults, **param_group})
        _core._optimizer_add(self, {"params": _listed(param_group.get("params", ())), **_of_record(own)})
        self._extra(_core._optimizer_groups(self) - 1).update(extra)

    def _split(self, group: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        own = {name: value for name, value in group.items() if name in self._options}
        extra = {name: value for name, value in group.items()
                 if name not in self._options and name != "params" and name not in _IGNORED}
        return own, extra

    # --- state --------------------------------------------------------------------------------------

    def _keys(self) -> list[list[int | str]]:
        """What stands for each parameter in the state: its path in the module, otherwise its number."""
        module, count, keys = self.__dict__.get("_module"), 0, []
        paths = {p: path for path, p in module.named_parameters(remove_duplicate=False)} if module is not None else {}
        for group in self.param_groups:
            params = group["params"]
            keys.append([paths.get(p, count + i) for i, p in enumerate(params)])
            count += len(params)
        return keys

    def state_dict(self) -> dict[str, Any]:
        """The state in PyTorch's form: {"state": {parameter: {name: tensor}}, "param_groups": [options]}.

        Parameters are numbers, or paths in the module that the optimizer was created for."""
        if not _core._is_made(self):
            return _own.state_dict(self)
        state: dict[int | str, dict[str, Tensor]] = {}
        flat = _core._state_of(self)
        for name, tensor in flat.items():
            owner, _, slot = name.rpartition(".")
            if not name.startswith("groups."):
                state.setdefault(int(owner) if owner.isdigit() else owner, {})[slot] = tensor
        groups = []
        for i, (group, keys) in enumerate(zip(self.param_groups, self._keys())):
            row = {name: value for name, value in group.items() if name != "params"}
            base = flat.get(f"groups.{i}.base_lr")
            if base is not None:
                row["initial_lr"] = base.item()
            groups.append({**row, "params": keys})
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the state of another optimizer of the same class, also PyTorch's."""
        groups, own = state_dict["param_groups"], self._keys()
        sizes, wanted = [len(g["params"]) for g in groups], [len(keys) for keys in own]
        if sizes != wanted:
            raise ValueError(f"the state has groups of {sizes} parameters, the optimizer of {wanted}")
        if not _core._is_made(self):
            _own.load_state_dict(self, state_dict)
            return
        flat, items = _core._state_of(self), []
        for i, (saved, group) in enumerate(zip(groups, self.param_groups)):
            options, extra = self._split(saved)
            base, has_base = extra.pop("initial_lr", None), f"groups.{i}.base_lr" in flat
            lr = options.pop("lr", None)
            items.append((f"groups.{i}.lr", _number(group["lr"] if lr is None else lr)))
            if has_base:
                items.append((f"groups.{i}.base_lr", flat[f"groups.{i}.base_lr"] if base is None else _number(base)))
            elif base is not None:
                extra["initial_lr"] = base
            for name, value in options.items():
                group[name] = tuple(value) if isinstance(value, list) else value
            self._extra(i).update(extra)
            slots = set(_core._optimizer_slots(self, i))
            for theirs, mine in zip(saved["params"], own[i]):
                kept = state_dict["state"].get(theirs, {})
                if "step" in slots and kept and "step" not in kept:  # PyTorch's SGD with dampening: after the first one
                    kept = {**kept, "step": 1.0}
                for slot, value in kept.items():
                    if slot in slots and value is not None:
                        items.append((f"{mine}.{slot}", _number(value) if slot == "step" else _core.as_tensor(value)))
        _core._set_state(self, items)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if not _core._is_made(self):
            return _own.remade, (type(self),), self.__dict__
        groups = [{name: value for name, value in group.items() if name != "lr"} for group in self.param_groups]
        return _rebuild, (type(self), groups, self.defaults), self.state_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        if not _core._is_made(self):
            self.__dict__.update(state)
            return
        own = self._keys()
        keys = [key for group in state["param_groups"] for key in group["params"]]
        to = dict(zip(keys, [key for group in own for key in group]))  # of a module's optimizer: paths become numbers
        self.load_state_dict({"state": {to[key]: value for key, value in state["state"].items() if key in to},
                              "param_groups": [{**g, "params": own[i]} for i, g in enumerate(state["param_groups"])]})

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {name}: {value}" for name, value in sorted(group.items()) if name != "params"]
        return "\n".join(lines + [")"])


def _number(value: Any) -> Tensor:
    return _core.tensor(float(value), dtype=_core.float64)


def _listed(params: Any) -> list[Any]:
    return [params] if isinstance(params, Tensor) else list(params)


def _rebuild(cls: type, groups: list[dict[str, Any]], defaults: dict[str, Any]) -> Optimizer:
    made = cls(groups, **defaults)
    assert isinstance(made, Optimizer)
    return made


def _with_pairs(signature: _inspect.Signature) -> _inspect.Signature:
    """With `betas` in the place of beta1 and beta2."""
    found = []
    for p in signature.parameters.values():
        if p.name == "beta1":
            p = p.replace(name="betas", default=(p.default, signature.parameters["beta2"].default))
        if p.name != "beta2":
            found.append(p)
    return signature.replace(parameters=found)


def _split_pairs(options: dict[str, Any]) -> dict[str, Any]:
    betas = options.get("betas")
    if betas is None:
        return options
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ValueError(f"betas is {betas!r}; it is a pair")
    return {**{name: value for name, value in options.items() if name != "betas"}, "beta1": betas[0], "beta2": betas[1]}


def options_of(signature: _inspect.Signature, skip: int) -> dict[str, Any]:
    """The arguments of a constructor with their defaults, in order, after the first ones."""
    found = list(signature.parameters.values())[skip:]
    return {p.name: None if p.default is p.empty else float(p.default) if type(p.default) is int else p.default
            for p in found}


def with_groups(cls: Any) -> type:
    """Completes the class of a record: its constructor takes PyTorch's groups and arguments."""
    init = cls.__init__
    signature = _with_pairs(_inspect.signature(init))
    cls._options = options_of(signature, 2)  # self, params
    order = [p.name for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY][2:]

    @_functools.wraps(init)
    def __init__(self: Any, params: Any, *args: Any, **options: Any) -> None:
        if len(args) > len(order):
            raise TypeError(f"{cls.__name__}() takes at most {1 + len(order)} positional arguments")
        for name, value in zip(order, args):
            if name in options:
                raise TypeError(f"{cls.__name__}() got the argument '{name}' twice")
            options[name] = value
        if options.pop("differentiable", False):
            raise _core.UnsupportedError("steps of an optimizer are not recorded on the tape; write the update with ops")
        options = {name: float(value) if name == "lr" else value for name, value in options.items()
                   if name not in _IGNORED and value is not None}
        if isinstance(params, _core.Module):
            init(self, params, **_split_pairs(options))
            self.__dict__.update(_defaults={**cls._options, **options}, _module=params)
            return
        groups = _listed(params) if not isinstance(params, Tensor) else params
        if not isinstance(groups, list) or not groups or not isinstance(groups[0], dict):
            init(self, groups, **_split_pairs(options))
            self.__dict__.update(_defaults={**cls._options, **options})
            return
        own, extra = self._split(groups[0])
        init(self, _listed(groups[0].get("params", ())), **_split_pairs({**options, **own}))
        self.__dict__.update(_defaults={**cls._options, **options})
        self._extra(0).update(extra)
        for group in groups[1:]:
            if not isinstance(group, dict):
                raise TypeError("all groups of parameters must be dicts")
            self.add_param_group(group)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    cls.__init__ = __init__
    made: type = cls
    return made
