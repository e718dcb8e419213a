"""Groups and state of optimizers that a program defines in Python."""
from __future__ import annotations

import copy as _copy
from typing import Any

from gradus import _core
from gradus._core import Tensor


class State(dict[Tensor, dict[str, Any]]):
    """A dict for each parameter, made when it is first used."""

    def __missing__(self, p: Tensor) -> dict[str, Any]:
        found = self[p] = {}
        return found


def groups_of(params: Any) -> list[dict[str, Any]]:
    """A module, parameters or groups as a list of groups."""
    if isinstance(params, Tensor):
        raise TypeError("params must be a sequence of tensors or a module, not one Tensor")
    found: list[Any] = list(getattr(params, "parameters")() if isinstance(params, _core.Module) else params)
    if not found:
        raise _core.ArgumentError("there are no parameters: the list is empty")
    if isinstance(found[0], dict):
        return found
    return [{"params": [p[1] if isinstance(p, tuple) else p for p in found]}]


def checked_group(optimizer: Any, group: dict[str, Any]) -> dict[str, Any]:
    """A group whose parameters are leaves that the optimizer has not got yet."""
    params = group.get("params", ())
    params = [params] if isinstance(params, Tensor) else list(params)
    seen = {id(p) for other in optimizer._groups for p in other["params"]}
    for p in params:
        if not isinstance(p, Tensor):
            raise TypeError(f"params must be tensors, a module or dicts, not {type(p).__name__}")
        if not p.is_leaf:
            raise _core.StateError("a parameter is the result of an op, not a leaf, and would never change")
        if id(p) in seen:
            raise _core.ArgumentError("a parameter is in the optimizer twice")
        seen.add(id(p))
    return {**group, "params": params}


def state_dict(optimizer: Any) -> dict[str, Any]:
    """The state in PyTorch's form."""
    numbers: dict[int, int] = {}
    groups = []
    for group in optimizer._groups:
        for p in group["params"]:
            numbers[id(p)] = len(numbers)
        groups.append({**group, "params": [numbers[id(p)] for p in group["params"]]})
    return {"state": {numbers[id(p)]: kept for p, kept in optimizer.state.items()}, "param_groups": groups}


def load_state_dict(optimizer: Any, saved: dict[str, Any]) -> None:
    """Takes such a state; tensors are copied."""
    params = [p for group in optimizer._groups for p in group["params"]]
    keys = [key for group in saved["param_groups"] for key in group["params"]]
    optimizer.state = State({p: {name: value.detach().clone() if isinstance(value, Tensor) else _copy.deepcopy(value)
                                 for name, value in saved["state"][key].items()}
                             for p, key in zip(params, keys) if key in saved["state"]})
    for group, other in zip(optimizer._groups, saved["param_groups"]):
        group.update({name: value for name, value in other.items() if name != "params"})


def remade(cls: Any) -> Any:
    """An object without content, for pickle."""
    return cls.__new__(cls)
