"""gradus.optim.lr_scheduler: learning rates that follow a formula, with PyTorch's names.

    scheduler = gd.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=1000, warmup=100)
    for x, y in loader:
        ...
        opt.step()
        scheduler.step()

Most are the library's: their rates are tensors, so that a step of a compiled function changes them. They compute the
closed form of their formula, from the rate that the optimizer had when they were created, and have the options warmup
and warmup_start. LambdaLR, MultiplicativeLR, CosineAnnealingWarmRestarts, SequentialLR and ReduceLROnPlateau are Python.
"""
from __future__ import annotations

import functools as _functools
import inspect as _inspect
import math as _math
from bisect import bisect_right as _bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from gradus import _core
from gradus._records import Records as _Records
from gradus.optim._optimizer import Optimizer, options_of as _options_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gradus.optim._schedules import (
        ConstantLR as ConstantLR, CosineAnnealingLR as CosineAnnealingLR, ExponentialLR as ExponentialLR, InverseLR as InverseLR,
        LinearLR as LinearLR, MultiStepLR as MultiStepLR, PolynomialLR as PolynomialLR, SigmoidLR as SigmoidLR, StepLR as StepLR)


class LRScheduler(_core.Schedule):
    """The base class. A scheduler of a program defines get_lr(), which returns the rate of each group."""

    _record: str | None = None
    last_epoch: int
    base_lrs: list[float]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"optimizer must be an Optimizer, not {type(optimizer).__name__}")
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group["initial_lr"] = group["lr"]
            elif "initial_lr" not in group:
                raise KeyError("a group of the optimizer has no 'initial_lr', from which a scheduler continues")
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def get_lr(self) -> Sequence[float]:
        """The rates of the groups after last_epoch steps."""
        raise NotImplementedError(f"{type(self).__name__} has no function get_lr")

    def step(self, epoch: int | None = None) -> None:
        """Sets the rates for the next step."""
        _outside_of_traces(self)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        for group, lr in zip(self.optimizer.param_groups, self.get_lr()):
            group["lr"] = lr

    def get_last_lr(self) -> list[float]:
        """The current rate of each group."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def _saved(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def state_dict(self) -> dict[str, Any]:
        """Its numbers."""
        return {**self._saved(), "_last_lr": self.get_last_lr()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from this state. The rates themselves are part of the optimizer's state."""
        self.__dict__.update({name: value for name, value in state_dict.items() if name != "_last_lr"})


def _outside_of_traces(scheduler: Any) -> None:
    if _core._is_tracing():
        raise _core.StateError(f"{type(scheduler).__name__} computes its rates in Python, so its step belongs behind the "
                               "compiled function, not into it")


class _LibraryScheduler(LRScheduler):
    """A schedule of the library: its step count and its rates are tensors."""

    def _step_tensor(self) -> _core.Tensor:
        step: _core.Tensor = _core._state_of(self)["step"]
        return step

    @property
    def last_epoch(self) -> int:  # type: ignore[override]
        """The number of steps so far."""
        return int(self._step_tensor().item())

    @property
    def base_lrs(self) -> list[float]:  # type: ignore[override]
        """The rates from which the formula starts."""
        state = _core._state_of(self.optimizer)
        return [state[f"groups.{i}.base_lr"].item() for i in range(_core._optimizer_groups(self.optimizer))]

    def get_lr(self) -> Sequence[float]:
        return self.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        if epoch is not None:
            self._step_tensor().fill_(epoch - 1.0)
        _core._schedule_step(self)

    def state_dict(self) -> dict[str, Any]:
        return {"last_epoch": self.last_epoch, "base_lrs": self.base_lrs, "_last_lr": self.get_last_lr()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._step_tensor().fill_(float(state_dict["last_epoch"]))


_schedules = _Records("schedule", _LibraryScheduler, "gradus.optim.lr_scheduler")
_DEFAULTS: dict[str, dict[str, Any]] = {"ConstantLR": {"factor": 1 / 3, "total_iters": 5}}  # PyTorch's


def _completed(cls: Any) -> type:
    """The class of a record, whose constructor takes PyTorch's other arguments."""
    init = cls.__init__
    order = list(_options_of(_inspect.signature(init), 2))

    @_functools.wraps(init)
    def __init__(self: Any, optimizer: Optimizer, *args: Any, **options: Any) -> None:
        if isinstance(optimizer, Optimizer) and not _core._is_made(optimizer):
            raise TypeError(f"{cls.__name__} is the library's and needs an optimizer of the library, not the Python class "
                            f"{type(optimizer).__name__}; LambdaLR takes both")
        if options.pop("last_epoch", -1) != -1:
            raise _core.UnsupportedError(f"{cls.__name__} starts with the optimizer's rate; load_state_dict continues")
        options.pop("verbose", None)
        given = set(order[:len(args)])
        for name, value in _DEFAULTS.get(cls.__name__, {}).items():
            if name not in given:
                options.setdefault(name, value)
        init(self, optimizer, *args, **options)
        self.__dict__["optimizer"] = optimizer

    cls.__init__ = __init__
    made: type = cls
    return made


def _one_cycle(cls: Any) -> type:
    """OneCycleLR has its own order of arguments: the highest rate and two forms of the length."""
    init = cls.__init__

    def __init__(self: Any, optimizer: Optimizer, max_lr: float | Sequence[float], total_steps: int | None = None,
                 epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
                 anneal_strategy: str = "cos", cycle_momentum: bool = False, base_momentum: float = 0.85,
                 max_momentum: float = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4,
                 three_phase: bool = False, last_epoch: int = -1, **options: Any) -> None:
        if cycle_momentum or three_phase:
            raise _core.UnsupportedError("OneCycleLR changes the rate only: cycle_momentum and three_phase must be False")
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR needs total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        groups = optimizer.param_groups
        rates = [max_lr] * len(groups) if isinstance(max_lr, (int, float)) else list(max_lr)
        if len(rates) != len(groups):
            raise ValueError(f"max_lr has {len(rates)} rates for {len(groups)} groups of parameters")
        for group, rate in zip(groups, rates):
            group["lr"] = rate
        init(self, optimizer, total_steps=total_steps, pct_start=pct_start,
             anneal_strategy=anneal_strategy, div_factor=div_factor, final_div_factor=final_div_factor,
             last_epoch=last_epoch, **options)

    __init__.__doc__ = init.__doc__
    cls.__init__ = __init__
    made: type = cls
    return made


def _class_for(record: str) -> type:
    name = _schedules.names.get(record)
    return globals().get(name) or _find(name) if name else LRScheduler


_core._set_finder(_core.Schedule, _class_for)

def _find(name: str) -> type:
    """A class of a record, which stays an attribute of the module."""
    found = _completed(_schedules.get(name))
    found = globals()[name] = _one_cycle(found) if name == "OneCycleLR" else found
    return found


if not TYPE_CHECKING:

    def __getattr__(name):
        if name in _schedules:
            return _find(name)
        raise AttributeError(f"module 'gradus.optim.lr_scheduler' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(dir(_schedules)))


if TYPE_CHECKING:

    class OneCycleLR(LRScheduler):
        def __init__(self, optimizer: Optimizer, max_lr: float | Sequence[float], total_steps: int | None = None,
                     epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
                     anneal_strategy: str = "cos", cycle_momentum: bool = False, base_momentum: float = 0.85,
                     max_momentum: float = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4,
                     three_phase: bool = False, last_epoch: int = -1, *, warmup: int = 0, warmup_start: float = 0.0) -> None: ...


class LambdaLR(LRScheduler):
    """The base rate times lr_lambda(number of steps): one function, or one for each group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
                 last_epoch: int = -1) -> None:
        count = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != count:
            raise ValueError(f"there are {len(self.lr_lambdas)} functions for {count} groups of parameters")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Sequence[float]:
        return [base * fn(self.last_epoch) for fn, base in zip(self.lr_lambdas, self.base_lrs)]

    def _saved(self) -> dict[str, Any]:
        return {name: value for name, value in super()._saved().items() if name != "lr_lambdas"}


class MultiplicativeLR(LambdaLR):
    """In each step the rate is multiplied by lr_lambda(number of steps)."""

    def get_lr(self) -> Sequence[float]:
        rates = self.get_last_lr()
        return [lr * fn(self.last_epoch) for fn, lr in zip(self.lr_lambdas, rates)] if self.last_epoch > 0 else rates


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine down to eta_min in T_0 steps, then again from the base rate, each time T_mult times as long."""

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0,
                 last_epoch: int = -1) -> None:
        if T_0 < 1 or T_mult < 1:
            raise ValueError(f"T_0 is {T_0} and T_mult {T_mult}; both must be at least 1")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Sequence[float]:
        length, at = self.T_0, self.last_epoch
        while at >= length:
            at -= length
            length *= self.T_mult
        half = (1 + _math.cos(_math.pi * at / length)) / 2
        return [self.eta_min + (base - self.eta_min) * half for base in self.base_lrs]


class SequentialLR(LRScheduler):
    """One scheduler after the other: number i + 1 begins after milestones[i] steps."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int],
                 last_epoch: int = -1) -> None:
        if len(schedulers) != len(milestones) + 1:
            raise ValueError(f"{len(schedulers)} schedulers need {len(schedulers) - 1} milestones, not {len(milestones)}")
        if any(s.optimizer is not optimizer for s in schedulers):
            raise ValueError("the schedulers of a SequentialLR belong to its optimizer")
        self.optimizer, self.milestones = optimizer, list(milestones)
        self._schedulers = list(schedulers)
        self.base_lrs = schedulers[0].base_lrs
        self.last_epoch = last_epoch + 1
        self._schedulers[0].step(0)

    def step(self, epoch: int | None = None) -> None:
        _outside_of_traces(self)
        self.last_epoch += 1
        number = _bisect_right(self.milestones, self.last_epoch)
        begins = number > 0 and self.milestones[number - 1] == self.last_epoch
        self._schedulers[number].step(0 if begins else None)

    def state_dict(self) -> dict[str, Any]:
        return {"last_epoch": self.last_epoch, "milestones": self.milestones,
                "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.last_epoch, self.milestones = state_dict["last_epoch"], list(state_dict["milestones"])
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"]):
            scheduler.load_state_dict(state)


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rates by factor when a value has not improved for `patience` steps: scheduler.step(loss)."""

    def __init__(self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
                 threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0,
                 min_lr: float | Sequence[float] = 0.0, eps: float = 1e-8) -> None:
        if not factor < 1:
            raise ValueError(f"factor is {factor}; it must be less than 1")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(f"mode is {mode!r} (min or max), threshold_mode {threshold_mode!r} (rel or abs)")
        count = len(optimizer.param_groups)
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        self.min_lrs = [float(min_lr)] * count if isinstance(min_lr, (int, float)) else list(min_lr)
        self.last_epoch, self.num_bad_epochs, self.cooldown_counter = 0, 0, 0
        self.best = _math.inf if mode == "min" else -_math.inf

    def _is_better(self, value: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        margin = self.threshold * (abs(self.best) if self.threshold_mode == "rel" else 1)
        if _math.isinf(self.best):
            return sign * value < sign * self.best
        return sign * value < sign * self.best - margin

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Looks at a value."""
        _outside_of_traces(self)
        value = float(metrics)
        self.last_epoch += 1
        if self._is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs):
                lr = max(group["lr"] * self.factor, least)
                if group["lr"] - lr > self.eps:
                    group["lr"] = lr
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
