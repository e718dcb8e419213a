"""compile, fit, evaluate and predict of a module, as in Keras, on the library's gd_compile and gd_fit."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gradus import _core
from gradus._core import Tensor



def compiled(net: Any) -> tuple[Any, Any]:
    """The optimizer and the schedule of a module, or None where there is none yet."""
    import gradus.optim.lr_scheduler  # noqa: F401 (their classes)

    optimizer, schedule = _core._compiled(net)
    if schedule is not None:
        schedule.__dict__.setdefault("optimizer", optimizer)
    return optimizer, schedule


class _Compiled:
    """An attribute for one of them. A module may have an attribute of its own of this name, which hides it."""

    def __init__(self, which: int, doc: str) -> None:
        self._which, self.__doc__ = which, doc

    def __get__(self, net: Any, cls: Any = None) -> Any:
        return self if net is None else compiled(net)[self._which]


class Trainable:
    """What every Module has for training."""

    __slots__ = ()

    def compile(self, optimizer: Any = "adam", loss: Any = None, metrics: Any = None, *, schedule: Any = None,
                precision: str = "f32", accumulate: int = 1, clip_norm: float = 0.0, clip_value: float = 0.0,
                jit: bool = True) -> None:
        """Sets how fit trains this module.

        optimizer: a text ("adamw lr=0.001 weight_decay=0.1"), an object of gd.optim, or None for a step of your own.
        loss: a text ("cross_entropy label_smoothing=0.1"), a loss layer, or a function of output and target.
        metrics: a text ("accuracy, top_k k=5"), or a list of texts, of gd.metrics and of functions of output and target.
        schedule: a text ("cosine warmup=100") or an object of gd.optim.lr_scheduler: a step after each one of the optimizer.
        precision: "f32", "bf16" or "f16". accumulate: batches for one step. clip_norm, clip_value: of the gradients."""
        optimizer, schedule = _text(optimizer), _text(schedule)
        if schedule is not None and not isinstance(schedule, str) and getattr(schedule, "_record", None) is None:
            raise TypeError(f"{type(schedule).__name__} computes its rates in Python, so it cannot be part of a step; a "
                            "callback can call its step() (gd.callbacks.LearningRateScheduler)")
        if isinstance(optimizer, _core.Optimizer) and not _core._is_made(optimizer):
            raise TypeError(f"{type(optimizer).__name__} is written in Python, so it cannot be part of a plan; compile with "
                            "optimizer=None, and give fit a step that calls its step()")
        loss = _loss_of(loss)
        found = tuple(_metrics_of(metrics))
        _core._compile(self, optimizer, schedule, loss, found, _precision(precision), accumulate, clip_norm, clip_value)
        self.__dict__["_training"] = {"loss": loss, "metrics": found, "jit": jit, "optimizer": optimizer,
                                      "schedule": schedule, "stop": False}

    optimizer = _Compiled(0, "The optimizer of compile(), or None. If sizes of the module are unknown, fit creates it.")
    lr_scheduler = _Compiled(1, "The schedule of compile(), or None.")

    @property
    def stop_training(self) -> bool:
        """A callback sets it to True to end the run."""
        return bool(self.__dict__.get("_training", {}).get("stop", False))

    @stop_training.setter
    def stop_training(self, stop: bool) -> None:
        self.__dict__.setdefault("_training", {})["stop"] = bool(stop)

    def fit(self, x: Any = None, y: Any = None, batch_size: int | None = None, epochs: int | None = None,
            verbose: str | int | bool = "auto", callbacks: Any = None, validation_split: float = 0.0,
            validation_data: Any = None, shuffle: bool = True, class_weight: Any = None, sample_weight: Any = None,
            *, steps_per_epoch: int | None = None, workers: int = 0, step: Callable[..., Any] | None = None, max_steps: int = 0,
            resume: Any = None, seed: int = 0, jit: bool | None = None, interrupt: bool = True) -> Any:
        """Trains, and returns the history.

        x: a tensor or an array, with targets y (or a tuple of several inputs); a DataLoader; a dataset; or a pair (x, y).
        validation_data: of the same kinds, or validation_split: the fraction of x that is held out.
        steps_per_epoch: the batches of an epoch, which run on across the end of the data; None: those of the data.
        class_weight: a weight for each class, as a list, a tensor or a dict; sample_weight: one for each sample.
        verbose: 0 nothing, 1 a bar, 2 a line for each epoch; "auto": a bar where it can be redrawn.
        step: your own training step, step(net, batch) -> loss, which calls loss.backward(). resume: a folder of
        checkpoints. seed: of all random numbers of the run. Ctrl-C ends the run after the batch."""
        from gradus._fit import fit

        return fit(self, x, y, batch_size=batch_size, epochs=epochs, verbose=verbose, callbacks=callbacks,
                   validation_split=validation_split, validation_data=validation_data, shuffle=shuffle,
                   class_weight=class_weight, sample_weight=sample_weight, workers=workers, step=step,
                   max_steps=max_steps, steps_per_epoch=steps_per_epoch, resume=resume, seed=seed, jit=jit, interrupt=interrupt)

    def evaluate(self, x: Any = None, y: Any = None, batch_size: int | None = None, verbose: str | int | bool = 0,
                 sample_weight: Any = None, *, workers: int = 0, return_dict: bool = False,
                 jit: bool | None = None) -> Any:
        """The loss, or a list of loss and metrics, on data in eval mode; with return_dict by their names."""
        from gradus._fit import evaluate

        return evaluate(self, x, y, batch_size=batch_size, verbose=verbose, sample_weight=sample_weight, workers=workers,
                        return_dict=return_dict, jit=jit)

    def predict(self, x: Any, batch_size: int | None = None, verbose: str | int | bool = 0, *, workers: int = 0,
                jit: bool | None = None) -> Tensor:
        """The first output for all samples, in eval mode."""
        from gradus._fit import predict

        return predict(self, x, batch_size=batch_size, workers=workers, jit=jit)

    def save_weights(self, path: Any, *, checksum: bool = False, shard_bytes: int = 0) -> None:
        """Writes parameters and buffers to a safetensors file, under the names of state_dict()."""
        _core._save_state(_path(path), [("", self)], checksum, shard_bytes)

    def load_weights(self, path: Any, *, partial: bool = False, prefix: str | None = None,
                     rename: Callable[[str], str | None] | str | None = None) -> Any:
        """Reads parameters and buffers from a safetensors file, a file of PyTorch, or a .npz file. partial: what fits, with a
        report; prefix: of names in the file that count, which is removed; rename(name): the name in the module, or None to
        leave it out, or rules as a text: "fc.*=head.*"."""
        from gradus._state import LoadReport

        report = _core._load_state(_path(path), [("", self)], partial, prefix, rename)
        return LoadReport(*report) if partial else None


def _path(path: Any) -> str:
    import os

    return str(os.fspath(path))


def _text(value: Any) -> Any:
    """"AdamW lr=0.1" as the record writes it: "adamw lr=0.1"."""
    if not isinstance(value, str):
        return value
    name, space, options = value.strip().partition(" ")
    return name.lower() + space + options


_PRECISIONS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "mixed_float16": "f16", "mixed_bfloat16": "bf16"}


def _precision(value: Any) -> str:
    name = getattr(value, "name", value)
    return _PRECISIONS.get(str(name), str(name))


# --- losses and metrics -------------------------------------------------------------------------------

_KERAS_LOSSES = {
    "sparse_categorical_crossentropy": "'cross_entropy', which takes logits and class numbers",
    "categorical_crossentropy": "'cross_entropy', which takes logits, and classes as numbers or one-hot",
    "binary_crossentropy": "'bce' for probabilities, 'bce_with_logits' for logits",
    "mean_squared_error": "'mse'", "mean_absolute_error": "'l1'", "huber": "'huber'", "kl_divergence": "'kl_div'"}


def _loss_of(loss: Any) -> Any:
    if loss is None or isinstance(loss, _core.Module):
        return loss
    if isinstance(loss, str):
        name = loss.split(" ")[0].lower()
        if name in _KERAS_LOSSES and name != "huber":
            raise _core.ArgumentError(f"there is no loss '{name}'; its name is {_KERAS_LOSSES[name]}")
        return loss
    if not callable(loss):
        raise TypeError(f"loss must be a text, a loss layer or a function of output and target, not {type(loss).__name__}")
    return _function_loss(loss)


def _function_loss(function: Callable[..., Any]) -> Any:
    """A module of the library that calls the function."""
    from gradus.nn import Module

    class Loss(Module):
        def forward(self, *tensors: Any) -> Any:
            result = function(*tensors)
            if not isinstance(result, Tensor):
                raise TypeError(f"the loss function {name} must return a tensor, not {type(result).__name__}")
            return result

    name = Loss.__name__ = getattr(function, "__name__", type(function).__name__)
    return Loss()


def _metrics_of(metrics: Any) -> Iterable[Any]:
    from gradus import metrics as known

    if metrics is None:
        return
    if isinstance(metrics, (str, _core.Metric)) or callable(metrics):
        metrics = [metrics]
    for metric in metrics:
        if isinstance(metric, str):
            for text in _split(metric):
                yield known.from_text(text)
        elif isinstance(metric, _core.Metric):
            yield metric
        elif isinstance(metric, type) and issubclass(metric, _core.Metric):
            yield metric()
        elif callable(metric):
            yield known.FunctionMetric(metric)
        else:
            raise TypeError(f"a metric is a text, a gd.metrics object or a function of output and target, not "
                            f"{type(metric).__name__}")


def _split(text: str) -> list[str]:
    """The metrics of a text: a comma before a name separates them."""
    import re

    return [part for part in re.split(r",\s*(?=[A-Za-z_]|$)", text.strip()) if part.strip()]


