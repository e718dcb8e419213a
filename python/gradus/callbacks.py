"""gradus.callbacks: what fit calls during training.

    class Printer(gd.callbacks.Callback):
        def on_epoch_end(self, epoch, logs):
            print(epoch, logs["loss"])

    net.fit(x, y, epochs=5, callbacks=[Printer(), gd.callbacks.EarlyStopping("loss", patience=2)])

The library's own are EarlyStopping, Checkpoint, ReduceLROnPlateau, CSVLog, TensorBoard, Scheduled and StopOnNaN.
"""
from __future__ import annotations

import json as _json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gradus import _core
from gradus._records import Records as _Records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gradus._callback_classes import *
    CSVLogger, TerminateOnNaN = CSVLog, StopOnNaN


class Logs(Mapping[str, float]):
    """The values of the epoch so far, read when they are first used: reading waits for the device."""

    def __init__(self, pointer: int) -> None:
        self._pointer: int | None = pointer
        self._values: dict[str, float] | None = None

    def _read(self) -> dict[str, float]:
        if self._values is None:
            if self._pointer is None:
                raise _core.StateError("the logs of a batch can be read in the callback only; dict(logs) keeps them")
            self._values = _known(_core._event_values(self._pointer))
        return self._values

    def __getitem__(self, name: str) -> float:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def copy(self) -> dict[str, float]:
        """The values as a dict."""
        return dict(self._read())

    def __repr__(self) -> str:
        return repr(self._read())


def _known(values: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value == value or not name.startswith("val_")}


class Event:
    """Where the run is, while a callback is called: callback.event."""

    def __init__(self, pointer: int, epoch: int, epochs: int, batch: int, batches: int, step: int, stopping: bool) -> None:
        self._pointer: int | None = pointer
        self.epoch, self.epochs, self.batch, self.batches = epoch, epochs, batch, batches
        self.step, self.stopping = step, stopping

    def stop(self, reason: str) -> None:
        """Ends the run after this event. The history has the reason."""
        if self._pointer is None:
            raise _core.StateError("the event is over")
        _core._event_stop(self._pointer, reason)


_NOT_CALLED = ("on_train_batch_begin", "on_batch_begin", "on_test_begin", "on_test_end", "on_test_batch_begin",
               "on_test_batch_end", "on_predict_begin", "on_predict_end", "on_predict_batch_begin",
               "on_predict_batch_end")


class Callback(_core.Callback):
    """The base class, with Keras's functions. self.model is the module that is trained, self.event says where the run is.

    `self.model.stop_training = True` ends the run, and so does `self.event.stop("a reason")`. With state_dict() and
    load_state_dict(), of what JSON can express, checkpoints keep its state."""

    _record: str | None = None
    model: Any = None
    event: Event | None = None
    params: dict[str, Any] = {}
    stop_training = False
    _failure: BaseException | None = None

    def __init__(self) -> None:
        pass

    def set_model(self, model: Any) -> None:
        """Called before the run."""
        self.model = model

    def set_params(self, params: dict[str, Any]) -> None:
        """Called before the run."""
        self.params = params

    def on_train_begin(self, logs: Any = None) -> None:
        """Once, before the first epoch."""

    def on_train_end(self, logs: Any = None) -> None:
        """Once, after the last epoch, but not after a failure."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Before each epoch, counted from 0."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """After each epoch and its validation."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """After each batch and its step."""

    # --- what the library calls ---------------------------------------------------------------------

    def _prepare(self) -> None:
        if self._record is not None or _core._is_made(self):
            return
        cls = type(self)
        missing = [name for name in _NOT_CALLED if hasattr(cls, name)]
        if missing:
            raise TypeError(f"{cls.__name__} has {', '.join(missing)}, which fit does not call: a batch is one run of a "
                            "plan; use on_train_batch_end or on_epoch_begin")
        batches = cls.on_train_batch_end is not Callback.on_train_batch_end or hasattr(cls, "on_batch_end")
        _core._callback_init(self, batches, hasattr(cls, "state_dict") and hasattr(cls, "load_state_dict"))

    def _event(self, kind: str, pointer: int, epoch: int, epochs: int, batch: int, batches: int, step: int,
               stopping: int) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        event = self.event = Event(pointer, epoch, epochs, batch, batches, step, bool(stopping))
        logs = Logs(pointer)
        try:
            if kind == "batch_end":
                old = getattr(self, "on_batch_end", None)
                (old or self.on_train_batch_end)(batch, logs)
            elif kind == "epoch_end":
                self.on_epoch_end(epoch, logs.copy())
            elif kind == "epoch_begin":
                self.on_epoch_begin(epoch, {})
            elif kind == "fit_begin":
                self.on_train_begin({})
            else:
                self.on_train_end(logs.copy())
            if self.stop_training or getattr(self.model, "stop_training", False):
                event.stop(f"{type(self).__name__} has stopped it")
        finally:
            event._pointer = logs._pointer = self.event = None

    def _save(self) -> bytes | None:
        state = self.state_dict()  # type: ignore[attr-defined]
        try:
            return None if state is None else _json.dumps(state).encode()
        except (TypeError, ValueError) as mistake:
            raise TypeError(f"{type(self).__name__}.state_dict() must be of what JSON can express: {mistake}") from None

    def _load(self, data: bytes) -> None:
        try:
            self.load_state_dict(_json.loads(data))  # type: ignore[attr-defined]
        except BaseException as failure:  # the next event raises it
            self._failure = failure


class LambdaCallback(Callback):
    """Calls functions: LambdaCallback(on_epoch_end=lambda epoch, logs: print(logs))."""

    def __init__(self, on_epoch_begin: Callable[..., Any] | None = None, on_epoch_end: Callable[..., Any] | None = None,
                 on_train_begin: Callable[..., Any] | None = None, on_train_end: Callable[..., Any] | None = None,
                 on_train_batch_end: Callable[..., Any] | None = None) -> None:
        for name, function in (("on_epoch_begin", on_epoch_begin), ("on_epoch_end", on_epoch_end),
                               ("on_train_begin", on_train_begin), ("on_train_end", on_train_end),
                               ("on_train_batch_end", on_train_batch_end)):
            if function is not None:
                setattr(self, name, function)

    def _prepare(self) -> None:
        if not _core._is_made(self):
            _core._callback_init(self, "on_train_batch_end" in self.__dict__, False)


class LearningRateScheduler(Callback):
    """Sets the rate before each epoch: schedule(epoch, lr) returns the new one."""

    def __init__(self, schedule: Callable[[int, float], float]) -> None:
        self.schedule = schedule

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        from gradus._train import compiled

        for group in compiled(self.model)[0].param_groups:
            group["lr"] = float(self.schedule(epoch, group["lr"]))


_callbacks = _Records("callback", Callback, "gradus.callbacks")
_ALSO = {"CSVLogger": "CSVLog", "TerminateOnNaN": "StopOnNaN", "ModelCheckpoint": None}  # Keras's names


def _class_for(record: str) -> type:
    name = _callbacks.names.get(record)
    return _callbacks.get(name) if name else Callback


_core._set_finder(_core.Callback, _class_for)

if not TYPE_CHECKING:

    def __getattr__(name):
        if name == "ModelCheckpoint":
            raise AttributeError("gradus.callbacks has no ModelCheckpoint: Checkpoint saves the whole run, from which fit "
                                 "resumes, and Checkpoint(path, best='val_loss') also the best state")
        if name in _callbacks or _ALSO.get(name):
            return _callbacks.get(_ALSO.get(name, name))
        raise AttributeError(f"module 'gradus.callbacks' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted((set(globals()) | set(dir(_callbacks))) - {"ModelCheckpoint"})
