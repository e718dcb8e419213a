"""Arguments of fit, evaluate and predict; histories."""
from __future__ import annotations

from typing import Any

from gradus import _core
from gradus._core import Tensor


class History(_core.History):
    """What fit returns: history has a list of values for each name, one for each epoch."""

    model: Any = None

    @property
    def history(self) -> dict[str, list[float]]:
        """The values by name: "loss", the metrics, "val_loss" and so on, "lr", "seconds"."""
        values: dict[str, list[float]] = _core._history_read(self)[0]
        return values

    @property
    def epoch(self) -> list[int]:
        """The numbers of the epochs."""
        return list(range(len(next(iter(self.history.values()), []))))

    @property
    def stopped(self) -> str | None:
        """Why the run ended early, or None."""
        reason: str | None = _core._history_read(self)[1]
        return reason

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the run."""
        return bool(_core._history_read(self)[2])

    def plot(self, path: Any = None) -> Any:
        """Writes the curves as an SVG image. Without a path: returns a figure of matplotlib."""
        import os

        if path is not None:
            return _core._history_plot(self, os.fspath(path))
        try:
            from matplotlib import pyplot  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise ImportError("plot() without a path needs matplotlib; plot('curve.svg') writes an image without it") from None
        values = {name: column for name, column in self.history.items() if name not in ("lr", "seconds")}
        names = [name for name in values if not name.startswith("val_")]
        figure, axes = pyplot.subplots(1, len(names), figsize=(5 * len(names), 4), squeeze=False)
        for name, axis in zip(names, axes[0]):
            axis.plot(values[name], label="training")
            if "val_" + name in values:
                axis.plot(values["val_" + name], label="validation")
            axis.set_title(name)
            axis.set_xlabel("epoch")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.legend()
        return figure

    def __repr__(self) -> str:
        rows = self.history
        last = ", ".join(f"{name} {column[-1]:.4g}" for name, column in rows.items() if column and column[-1] == column[-1])
        reason = f"; {self.stopped}" if self.stopped else ""
        return f"<History of {len(self.epoch)} epochs: {last}{reason}>"


_core._set_finder(_core.History, lambda record: History)

# --- data ---------------------------------------------------------------------------------------------


def _to_tensor(value: Any, dtype: Any, what: str) -> Tensor:
    """A tensor of an array. Arrays of float64, which NumPy makes of all numbers, get the dtype of the net."""
    if isinstance(value, Tensor):
        return value
    try:
        made = _core.as_tensor(value)
    except TypeError:
        raise TypeError(f"{what} must be a tensor, an array, a DataLoader or a dataset, not {type(value).__name__}") from None
    if made.ndim == 0:
        raise TypeError(f"{what} must be a tensor whose first axis is the samples, not one {type(value).__name__}")
    return made.to(dtype) if made.dtype == _core.float64 else made


def _dtype_of(net: Any) -> Any:
    for module in net.modules():
        for name, kind in module._load().items():
            tensor = module.__dict__[name]
            if kind == "parameter" and tensor is not None and tensor.is_floating_point():
                return tensor.dtype
    return _core.float32


def _several(value: Any) -> list[Any]:
    """Inputs or targets: one, or a tuple or list of several."""
    if isinstance(value, tuple) or (isinstance(value, list) and value and hasattr(value[0], "shape")):
        return list(value)
    return [value]


class _Data:
    """Data of fit, and how its batches are made."""

    def __init__(self, net: Any, x: Any, y: Any, weight: Any, what: str = "x") -> None:
        if y is None and isinstance(x, tuple) and len(x) in (2, 3) and what != "inputs":
            x, y, weight = x[0], x[1], x[2] if len(x) == 3 else weight
        self.object: Any = None
        self.tensors: tuple[Tensor, ...] = ()
        self.targets = self.weights = 0
        if isinstance(x, (_core.Loader, _core.Dataset)) or _is_dataset(x):
            if y is not None or weight is not None:
                raise TypeError(f"a {type(x).__name__} has the targets and weights itself; y and sample_weight must be None")
            if isinstance(x, _core.Loader) and not _core._is_made(x):
                raise TypeError(f"the {type(x).__name__} reads a stream; fit needs a dataset with __len__ and __getitem__")
            self.object = x
            return
        dtype = _dtype_of(net)
        inputs = [_to_tensor(t, dtype, what) for t in _several(x)]
        targets = [] if y is None else [_to_tensor(t, dtype, "y") for t in _several(y)]
        weights = [] if weight is None else [_to_tensor(weight, dtype, "sample_weight")]
        self.tensors = (*inputs, *targets, *weights)
        self.targets, self.weights = len(targets), len(weights)

    def is_simple(self) -> bool:
        """Whether the library makes the batches: of one target at most, the last tensor if there are two or more."""
        return not self.weights and (self.targets == 1 or (self.targets == 0 and len(self.tensors) == 1))

    def given(self, batch: int, shuffle: bool, workers: int, seed: int) -> Any:
        if self.object is not None:
            if _core._is_made(self.object):
                return self.object
            from gradus.data import DataLoader  # the samples come from Python

            return DataLoader(self.object, batch_size=batch, shuffle=shuffle, num_workers=workers, seed=seed)
        if self.is_simple():
            return self.tensors
        return _core._loader_of(self.tensors, self.targets, self.weights, batch, shuffle, workers, seed)


def _is_built(x: Any) -> bool:
    return isinstance(x, _core.Dataset) and bool(_core._is_made(x))


def _is_dataset(x: Any) -> bool:
    """Whether it is a dataset of a program: no array, but an object with a length and samples."""
    return (not isinstance(x, (tuple, list, str, bytes)) and not hasattr(x, "shape") and not hasattr(x, "__array__")
            and not hasattr(x, "__buffer__") and hasattr(type(x), "__getitem__") and hasattr(type(x), "__len__")
            and not isinstance(x, (bytearray, memoryview, dict)) and not hasattr(x, "typecode"))


def _class_weights(net: Any, weights: Any) -> Tensor | None:
    if weights is None or isinstance(weights, Tensor):
        return None if weights is None else weights.to(_core.float32)
    if isinstance(weights, dict):
        weights = [float(weights.get(i, 1.0)) for i in range(max(weights) + 1)]
    return _core.tensor(list(weights), dtype=_core.float32)


# --- calls --------------------------------------------------------------------------------------------


def _jit(net: Any, jit: bool | None) -> bool:
    return bool(net.__dict__.get("_training", {}).get("jit", True)) if jit is None else jit


def _check_compiled(net: Any, what: str, step: Any = None) -> None:
    training = net.__dict__.get("_training", {})
    if "loss" not in training:
        raise _core.StateError(f"{what}: the {type(net).__name__} is not compiled; call "
                               'net.compile(optimizer="adam", loss="cross_entropy") first')
    if what == "fit" and training["loss"] is None and step is None:
        raise _core.StateError(f"fit: the {type(net).__name__} was compiled without a loss; give compile a loss, or fit a step")


def _callback_list(callbacks: Any) -> tuple[Any, ...]:
    if callbacks is None:
        return ()
    found = (callbacks,) if isinstance(callbacks, _core.Callback) else tuple(callbacks)
    for callback in found:
        if isinstance(callback, type) and issubclass(callback, _core.Callback):
            raise TypeError(f"callbacks has the class {callback.__name__}; create an object: {callback.__name__}(...)")
        if not isinstance(callback, _core.Callback):
            raise TypeError(f"a callback is an object of gd.callbacks.Callback, not {type(callback).__name__}")
    return found


def fit(net: Any, x: Any, y: Any, *, batch_size: int | None, epochs: int | None, verbose: Any, callbacks: Any,
        validation_split: float, validation_data: Any, shuffle: bool, class_weight: Any, sample_weight: Any, workers: int,
        step: Any, max_steps: int, steps_per_epoch: int | None, resume: Any, seed: int, jit: bool | None, interrupt: bool) -> History:
    """Module.fit."""
    import os

    from gradus import _progress

    _check_compiled(net, "fit", step)
    batch = 32 if batch_size is None else batch_size
    data = _Data(net, x, y, sample_weight)
    if batch_size is not None and isinstance(data.object, _core.Loader):
        raise TypeError("a DataLoader has its own batch size; batch_size must be None")
    if validation_split and not data.is_simple() and not _is_built(data.object):
        raise _core.ArgumentError("validation_split needs tensors with one target, or a dataset; give validation_data")
    held = None if validation_data is None else _Data(net, validation_data, None, None, "validation_data")
    found = _callback_list(callbacks)
    prepared = _prepared()
    for callback in found:
        if isinstance(callback, prepared):
            callback.set_model(net)
            callback.set_params({"epochs": epochs, "verbose": verbose})
            callback.stop_training = False
            callback._prepare()
    net.stop_training = False
    mode, receiver = _progress.choose(verbose)
    with receiver:
        history = _core._fit(
            net, data.given(batch, shuffle, workers, seed), epochs=epochs or 0, max_steps=max_steps,
            steps_per_epoch=steps_per_epoch or 0, validation=held and held.given(batch, False, workers, seed), validation_split=validation_split,
            class_weights=_class_weights(net, class_weight), callbacks=found,
            resume=None if resume is None else os.fspath(resume), step=step, batch=batch, shuffle=shuffle, workers=workers,
            seed=seed, progress=mode, receiver=receiver.for_library(), interrupt=interrupt, jit=_jit(net, jit))
    assert isinstance(history, History)
    history.model = net
    return history


def _prepared() -> Any:
    from gradus.callbacks import Callback

    return Callback


def evaluate(net: Any, x: Any, y: Any, *, batch_size: int | None, verbose: Any, sample_weight: Any, workers: int,
             return_dict: bool, jit: bool | None) -> Any:
    """Module.evaluate."""
    from gradus import _progress

    _check_compiled(net, "evaluate")

    batch = 32 if batch_size is None else batch_size
    mode, receiver = _progress.choose(verbose)
    with receiver:
        history = _core._evaluate(net, _Data(net, x, y, sample_weight).given(batch, False, workers, 0), batch, workers,
                                  _jit(net, jit), mode, receiver.for_library())
    values = {name: column[-1] for name, column in _core._history_read(history)[0].items()}
    values.pop("seconds", None)
    if return_dict:
        return values
    return next(iter(values.values())) if len(values) == 1 else list(values.values())


def predict(net: Any, x: Any, *, batch_size: int | None, workers: int, jit: bool | None) -> Tensor:
    """Module.predict."""
    batch = 32 if batch_size is None else batch_size
    data = _Data(net, x, None, None, "inputs")
    given = data.tensors if data.object is None else data.given(batch, False, workers, 0)
    outputs: Tensor = _core._predict(net, given, batch, workers, _jit(net, jit), 0, None)
    return outputs
