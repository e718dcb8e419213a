"""gradus.nn.Module: trees of parameters with a forward function, as in PyTorch.

The tree is the library's: a Module holds a module of the library, and all that walks over the tree (state, moves,
freezing, summaries, messages, ONNX) is the library's, too. The attributes of the Python object show its parts. Their
objects stand in the dict of the parent, so that `net.conv` costs what any attribute costs, and live as long as it does.
"""
from __future__ import annotations

import copy as _copy
import os
from _thread import _local
from collections import OrderedDict
from typing import Any, Callable, Iterator, NamedTuple

from gradus import _core
from gradus._core import Tensor
from gradus._train import Trainable


class Parameter(Tensor):
    """A tensor that a module trains: Parameter(data, requires_grad=True)."""

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Parameter:
        data = _core.empty(0) if data is None else data
        made: Parameter = (data.detach() if isinstance(data, Tensor) else _core.tensor(data)).as_subclass(cls)
        made.requires_grad_(requires_grad)
        return made

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        copied: Parameter = memo[id(self)]
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Parameter, (self.detach(), self.requires_grad)


_core._set_parameter_class(Parameter)


def _examples(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Inputs of which only the shapes count: a tuple of ints is the shape of floats."""
    return tuple(
        _core.zeros(i) if isinstance(i, tuple) and i and all(isinstance(n, int) for n in i) else i for i in inputs)


class IncompatibleKeys(NamedTuple):
    """What load_state_dict has not found, and what it has not used."""
    missing_keys: list[str]
    unexpected_keys: list[str]


class RemovableHandle:
    """A hook that was added: remove() takes it away, and so does the end of a block."""

    def __init__(self, module: Module, number: int) -> None:
        self._module, self._number = module, number

    def remove(self) -> None:
        if self._module.__dict__.get("_hooks", {}).pop(self._number, None) is not None:
            _core._module_unhook(self._module, self._number)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *failure: object) -> None:
        self.remove()


_copying = _local()
_PRIVATE = frozenset(("_parts", "_hooks", "_not_saved", "_arguments", "_added", "_overrides", "_seen"))


class Module(Trainable, _core.Module):
    """A part of a network: parameters, buffers, other modules, and a function `forward`.

        class Net(gd.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.fc = gd.nn.Conv2d(1, 16, 5), gd.nn.Linear(2304, 10)
            def forward(self, x):
                return self.fc(gd.max_pool2d(gd.relu(self.conv(x)), 2).flatten(1))
    """

    _content = "python"  # or a container of the library: "sequential", "list"
    _record: str | None = None  # of the library's layers
    _inputs = ""
    _overrides = False  # forward is Python's, in place of the layer's
    _from_library: Any = None  # forward for the inputs of the library's layer, where they differ from forward's

    def __init__(self) -> None:
        if not _core._module_has_content(self):  # classes with several bases may call it twice
            _core._module_init(self, self._content)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "forward" in cls.__dict__ and "_overrides" not in cls.__dict__:
            cls._overrides = True

    def forward(self, *inputs: Any, **names: Any) -> Any:
        """The outputs for these inputs. A class of a program defines it; a call of the module calls it."""
        if _core._module_is_python(self) and not self._record and self._content != "sequential":
            raise NotImplementedError(f"{type(self).__name__} has no function forward")
        return _core._module_forward(self, *inputs, **names)

    # --- parts --------------------------------------------------------------------------------------

    def _load(self) -> dict[str, str]:
        """The kinds of all parts by their names, after their objects were put into the dict."""
        own = self.__dict__
        if self._is_loaded():
            known: dict[str, str] = own["_parts"]
            return known
        now = _core._module_changes()
        parts: dict[str, str] = {}
        for kind, name, part in _core._module_parts(self):
            parts[name] = kind
            if name not in own or own[name] is not part:
                own[name] = part
        own["_parts"], own["_seen"] = parts, now
        return parts

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            if not _core._module_has_content(self):
                raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'; its __init__ has not called "
                                     "super().__init__()")
            if name in self._load():
                return self.__dict__[name]
            options = self._options()
            if name in options:
                return options[name]
        raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'", name=name, obj=self)

    def _options(self) -> dict[str, Any]:
        """The arguments with which a layer of the library was created, with sizes that it has inferred."""
        return {name: value for name, value, _ in _core._module_options(self)} if self._record else {}

    def _set_part(self, kind: str, name: str, value: Any) -> None:
        if self._record is not None and name not in (self.__dict__.get("_parts") or self._load()):
            self.__dict__.setdefault("_added", set()).add(name)  # beside those of the layer
        known = self._is_loaded()
        _core._module_set(self, kind, name, value)
        self._note_part(kind, name, value, known)

    def _is_loaded(self) -> bool:
        return bool(self.__dict__.get("_seen") == _core._module_changes())

    def _note_part(self, kind: str, name: str, value: Any, known: bool) -> None:
        """Notes a part that the library's module has got. `known`: before it all were, so the tree is not read again."""
        own = self.__dict__
        own[name] = value
        own.setdefault("_parts", {})[name] = kind
        if known:
            own["_seen"] = _core._module_changes()

    def __setattr__(self, name: str, value: Any) -> None:
        parts = self.__dict__.get("_parts")
        if name == "forward" and callable(value):
            self._set_forward(value)
        elif isinstance(value, _core.Module):
            self._set_part("child", name, value)
        elif isinstance(value, Parameter):
            self._set_part("parameter", name, value)
        elif parts and name in parts:
            kind = parts[name]
            if value is None and kind != "child":
                self._set_part(kind, name, None)
            elif kind == "buffer" and isinstance(value, Tensor):
                self._set_part(kind, name, value)
            elif value is None:
                self.__delattr__(name)
                object.__setattr__(self, name, None)
            else:
                raise TypeError(f"'{name}' is a {kind} of the module; it cannot become a {type(value).__name__}"
                                + ("; assign a gd.nn.Parameter" if kind == "parameter" else ""))
        elif parts is None and self._is_built_part(name):
            self._load()
            self.__setattr__(name, value)
        elif self._record is not None and self._is_other_option(name, value):
            number = float("nan") if value is None and name == "momentum" else value
            if isinstance(number, (int, float)) and _core._module_set_number(self, self._record, name, number):
                return
            raise AttributeError(f"{name} of a {type(self).__name__} is {self._options()[name]!r}; it is fixed when the layer "
                                 "is created")
        else:
            object.__setattr__(self, name, value)

    def _set_forward(self, forward: Callable[..., Any]) -> None:
        """An object with a forward of its own: the library calls that one, too."""
        self.__dict__.update(forward=forward, _overrides=True)
        if _core._module_has_content(self) and not _core._module_is_python(self):
            _core._module_override(self)

    def _is_other_option(self, name: str, value: Any) -> bool:
        """Whether a value differs from the layer's option of this name, which stays as it is."""
        options = self._options() if _core._module_has_content(self) else {}
        if name not in options:
            return False
        own = options[name]
        return bool(own != value and own != (value,) and own != (value, value) and own != (value,) * 3)

    def _is_built_part(self, name: str) -> bool:
        """Whether the library has given this module a part that Python has not asked for yet."""
        return (self._record is not None and name not in _PRIVATE and _core._module_has_content(self)
                and any(part == name for _, part, _ in _core._module_parts(self)))

    def __delattr__(self, name: str) -> None:
        if name in self._load():
            if self._record is not None and not self._overrides and name not in self.__dict__.get("_added", ()):
                raise AttributeError(f"{name} belongs to the layer {type(self).__name__}, which computes with it; assign "
                                     "another one, or None, or derive a class with a forward of its own")
            _core._module_set(self, "remove", name, None)
            del self.__dict__["_parts"][name]
            self.__dict__.pop(name, None)
        else:
            object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted(set(object.__dir__(self)) | set(self._load()))

    def register_parameter(self, name: str, param: Tensor | None) -> None:
        """Adds a parameter; None is an absent one."""
        if param is not None and not isinstance(param, Tensor):
            raise TypeError(f"the parameter '{name}' must be a Tensor or None, not {type(param).__name__}")
        self._set_part("parameter", name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that moves with the module but is not trained. If it is not persistent, state_dict has it not."""
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"the buffer '{name}' must be a Tensor or None, not {type(tensor).__name__}")
        self._set_part("buffer", name, tensor)
        if not persistent:
            self.__dict__.setdefault("_not_saved", set()).add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a child under a name."""
        if module is None:
            object.__setattr__(self, name, None)
            return
        if not isinstance(module, _core.Module):
            raise TypeError(f"the child '{name}' must be a Module, not {type(module).__name__}")
        self._set_part("child", name, module)

    register_module = add_module

    # --- walks --------------------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The direct children with their names."""
        for name, kind in self._load().items():
            if kind == "child" and self.__dict__[name] is not None:
                yield name, self.__dict__[name]

    def children(self) -> Iterator[Module]:
        """The direct children."""
        return (child for _, child in self.named_children())

    def named_modules(self, memo: set[Module] | None = None, prefix: str = "",
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """This module and all below it, with their paths, each once."""
        return iter(self._walk(prefix, remove_duplicate, set() if memo is None else memo, []))

    def _walk(self, path: str, once: bool, seen: set[Module], found: list[tuple[str, Module]]) -> list[tuple[str, Module]]:
        if self in seen:
            return found
        if once:
            seen.add(self)
        found.append((path, self))
        for name, kind in self._load().items():
            if kind == "child":
                child = self.__dict__[name]
                if child is not None:
                    child._walk(f"{path}.{name}" if path else name, once, seen, found)
        return found

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def _named_tensors(self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        seen: set[Any] = set()
        for path, module in self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else (
                (prefix, self),):
            for name, found in module._load().items():
                tensor = module.__dict__[name]
                if found != kind or tensor is None or (remove_duplicate and tensor in seen):
                    continue
                seen.add(tensor)
                yield (f"{path}.{name}" if path else name), tensor

    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """All parameters with their paths: 'fc.weight'."""
        _core._module_check_built(self)
        return self._named_tensors("parameter", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once. Fails while layers whose sizes were not given have none yet."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True,
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """All buffers with their paths: 'bn.running_mean'."""
        return self._named_tensors("buffer", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, each once."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module at a path: 'layer1.0.conv1'."""
        module: Any = self
        for name in target.split(".") if target else ():
            if module._load().get(name) != "child":
                raise AttributeError(f"{type(module).__name__} has no child '{name}' (of the path '{target}')")
            module = module.__dict__[name]
        found: Module = module
        return found

    def set_submodule(self, target: str, module: Module) -> None:
        """Replaces the module at a path, or adds one to the module above it."""
        path, _, name = target.rpartition(".")
        self.get_submodule(path).add_module(name, module)

    def reset_parameters(self) -> None:
        """Draws new initial values for the parameters of a layer. Other modules stay as they are."""
        if self._record is None or not any(kind == "parameter" for kind in self._load().values()):
            return
        fresh = _rebuild(type(self), self._record, ((), self._options()), False)
        own, before = self.state_dict(keep_vars=True), _core._grad_mode(False)
        try:
            for name, value in fresh.state_dict().items():
                if name in own:
                    own[name].copy_(value)
        finally:
            _core._grad_mode_end(before)

    def _get_tensor(self, kind: str, target: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if module._load().get(name) != kind:
            raise AttributeError(f"{type(module).__name__} has no {kind} '{name}'")
        return module.__dict__[name]

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path: 'fc.weight'."""
        found: Parameter = self._get_tensor("parameter", target)
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path."""
        found: Tensor = self._get_tensor("buffer", target)
        return found

    def apply(self, fn: Callable[[Module], Any]) -> Module:
        """Calls a function for all modules below this one and for this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # --- state --------------------------------------------------------------------------------------

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> OrderedDict[str, Tensor]:
        """All parameters and buffers by their paths. They share memory with the module."""
        state: OrderedDict[str, Tensor] = OrderedDict()
        for path, module in self.named_modules(prefix=prefix.rstrip("."), remove_duplicate=False):
            skipped = module.__dict__.get("_not_saved", ())
            for name, kind in module._load().items():
                tensor = module.__dict__[name]
                if kind != "child" and tensor is not None and name not in skipped:
                    state[f"{path}.{name}" if path else name] = tensor if keep_vars else tensor.detach()
        return state

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> IncompatibleKeys:
        """Copies values of a state dict, also PyTorch's, into the parameters and buffers. If it fails, none has changed."""
        own = self.state_dict(keep_vars=True)
        missing = [name for name in own if name not in state_dict]
        unexpected = [name for name in state_dict if name not in own]
        found = {name: _core.as_tensor(value.detach() if hasattr(value, "detach") else value)
                 for name, value in ((name, state_dict[name]) for name in own if name in state_dict)}
        wrong = [f"{name} is {tuple(value.shape)} in the state, {tuple(own[name].shape)} in the module"
                 for name, value in found.items() if tuple(value.shape) != tuple(own[name].shape)]
        problems = wrong + ([f"missing: {', '.join(missing)}"] if strict and missing else []) + (
            [f"not in the module: {', '.join(unexpected)}"] if strict and unexpected else [])
        if problems:
            raise _core.ShapeError(f"{type(self).__name__}.load_state_dict: " + "; ".join(problems)) if wrong else (
                _core.ArgumentError(f"{type(self).__name__}.load_state_dict: " + "; ".join(problems)))
        before = _core._grad_mode(False)
        try:
            for name, value in found.items():
                own[name].copy_(value)
        finally:
            _core._grad_mode_end(before)
        return IncompatibleKeys(missing, unexpected)

    # --- modes and places ---------------------------------------------------------------------------

    @property
    def training(self) -> bool:
        """Whether the module is in train mode, which dropout and batch norms read."""
        mode: bool = _core._module_is_training(self)
        return mode

    @training.setter
    def training(self, mode: bool) -> None:
        _core._module_train_alone(self, bool(mode))

    def train(self, mode: bool = True) -> Module:
        """Sets the mode of this module and all below it."""
        _core._module_train(self, mode)
        return self

    def eval(self) -> Module:
        """Train mode off: dropout does nothing, batch norms use their statistics."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Freezes the parameters if it is False, or trains them again."""
        _core._module_freeze(self, not requires_grad)
        return self

    def freeze(self) -> Module:
        """Parameters require no gradient, and optimizers skip them."""
        return self.requires_grad_(False)

    def unfreeze(self) -> Module:
        """Parameters require gradients again."""
        return self.requires_grad_(True)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of all parameters."""
        _core._module_zero_grad(self)

    def to(self, *args: Any, device: Any = None, dtype: Any = None, non_blocking: bool = False) -> Module:
        """Moves to a device, converts floats to a dtype, or does both. The parameters stay the same objects."""
        for arg in args:
            if isinstance(arg, Tensor):
                device, dtype = arg.device, arg.dtype
            elif isinstance(arg, (str, _core.device)):
                try:
                    dtype = _core._as_dtype(arg) if isinstance(arg, str) and device is None and ":" not in arg else dtype
                    device = device if isinstance(arg, str) and dtype is not None else arg
                except TypeError:
                    device = arg
            elif arg is not None and not isinstance(arg, bool):
                dtype = arg
        _core._module_to(self, device, dtype)
        return self

    def cpu(self) -> Module:
        """Moves to the CPU."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None) -> Module:
        """Moves to a GPU."""
        return self.to(device=f"cuda:{device}" if isinstance(device, int) else device or "cuda")

    def type(self, dst_type: Any) -> Module:
        """Converts floats to a dtype."""
        return self.to(dtype=dst_type)

    def float(self) -> Module:
        """Converts floats to float32."""
        return self.to(dtype=_core.float32)

    def double(self) -> Module:
        """Converts floats to float64."""
        return self.to(dtype=_core.float64)

    def half(self) -> Module:
        """Converts floats to float16."""
        return self.to(dtype=_core.float16)

    def bfloat16(self) -> Module:
        """Converts floats to bfloat16."""
        return self.to(dtype=_core.bfloat16)

    # --- hooks --------------------------------------------------------------------------------------

    def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False,
                              always_call: bool = False) -> RemovableHandle:
        """Calls hook(module, inputs, output) after each forward; what it returns replaces the output."""
        if prepend or with_kwargs or always_call:
            raise _core.UnsupportedError("hooks have no prepend, with_kwargs and always_call")
        return self._add_hook(hook, False)

    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                                  with_kwargs: bool = False) -> RemovableHandle:
        """Calls hook(module, inputs) before each forward; what it returns replaces the inputs."""
        if prepend or with_kwargs:
            raise _core.UnsupportedError("hooks have no prepend and with_kwargs")
        return self._add_hook(hook, True)

    def _add_hook(self, hook: Callable[..., Any], before: bool) -> RemovableHandle:
        number = _core._module_hook(self, hook, before)
        self.__dict__.setdefault("_hooks", {})[number] = hook  # the library's module does not hold it
        return RemovableHandle(self, number)

    # --- text ---------------------------------------------------------------------------------------

    def summary(self, *inputs: Any) -> str:
        """A table of layers with output shapes, parameters and multiply-adds, for inputs like these: tensors, or shapes
        as tuples of ints, of floats."""
        text: str = _core._module_summary(self, _examples(inputs))
        return text

    def draw(self, path: str | os.PathLike[str], *inputs: Any, left_to_right: bool = False, title: str | None = None) -> None:
        """Draws the layers as an SVG image, or for a path that ends in .dot as a text for Graphviz, with the shapes for
        inputs like these: tensors, or shapes as tuples of ints, of floats."""
        _core._module_draw(self, os.fspath(path), _examples(inputs), left_to_right, title)

    def extra_repr(self) -> str:
        """What repr() shows of the module itself."""
        if self._record and _core._module_options(self):
            return ", ".join(f"{name}={value!r}" for name, value, how in _core._module_options(self) if how == "given")
        args, names = self.__dict__.get("_arguments", ((), {}))
        return ", ".join([repr(a) for a in args] + [f"{k}={v!r}" for k, v in names.items()])

    def _get_name(self) -> str:
        return type(self).__name__ if type(self) is not Module else str(_core._module_type(self))

    def __repr__(self) -> str:
        if not _core._module_has_content(self):
            return f"{type(self).__name__}()"
        children = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self.named_children()]
        extra = self.extra_repr() if not children or type(self).extra_repr is not Module.extra_repr else ""
        lines = [line for line in [extra] if line] + children
        if not children:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"

    # --- copies -------------------------------------------------------------------------------------

    def _attributes(self) -> dict[str, Any]:
        """What the dict has beside the parts."""
        parts = self._load()
        return {name: value for name, value in self.__dict__.items()
                if name not in parts and name not in ("_parts", "_hooks", "_seen", "_training")}

    def _copy_attributes(self, to: Module) -> None:
        """Completes a clone that the library has made; that of __deepcopy__ gets its attributes there."""
        if not getattr(_copying, "whole", False):
            to.__dict__.update(_copy.deepcopy(self._attributes()))

    def __deepcopy__(self, memo: dict[int, Any]) -> Module:
        before, _copying.whole = getattr(_copying, "whole", False), True
        try:
            made: Module = _core._module_clone(self)
        finally:
            _copying.whole = before
        pairs = list(zip(self.modules(), made.modules()))
        for old, new in pairs:  # attributes may refer to modules and parameters of the tree
            memo[id(old)] = new
            new._load()
            for name in old._load():
                if isinstance(old.__dict__[name], Tensor):
                    memo[id(old.__dict__[name])] = new.__dict__[name]
        for old, new in pairs:
            new.__dict__.update(_copy.deepcopy(old._attributes(), memo))
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        parts = [(kind, name, self.__dict__[name]) for name, kind in self._load().items()]
        state = {"attributes": {k: v for k, v in self._attributes().items() if k != "_arguments"}, "parts": parts,
                 "training": self.training}
        arguments = self.__dict__.get("_arguments") or ((), self._options())
        made_here = self._record or self._content != "python" or _core._module_is_python(self)
        if not made_here or (self._record and not hasattr(type(self), "_library_init")):
            raise TypeError(f"a {_core._module_type(self)} that the library has created cannot be pickled; "
                            "save its state_dict()")
        return _rebuild, (type(self), self._record, arguments, self._overrides), state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._load()
        for kind, name, part in state["parts"]:
            self._set_part(kind, name, part)
        for name, value in state["attributes"].items():
            object.__setattr__(self, name, value)
        self.training = state["training"]


def _rebuild(cls: Any, record: str | None, arguments: Any, overrides: bool) -> Module:
    """A module for the pickled state of one."""
    made: Module = cls.__new__(cls)
    if record is None:
        _core._module_init(made, cls._content)
        return made
    if overrides:
        made.__dict__["_overrides"] = True
    cls._library_init(made, *arguments[0], **arguments[1])
    if arguments[0] or not made._options():
        made.__dict__["_arguments"] = arguments
    return made
