"""compile, fit, evaluate and predict; callbacks, metrics, histories, checkpoints, state files."""
import gc
import io
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import unittest
import zipfile

import gradus as gd

try:
    from gradus import data
except ImportError:
    data = None

CLASSES, FEATURES, SAMPLES = 3, 5, 90


def make_data():
    gd.manual_seed(7)
    x = gd.randn(SAMPLES, FEATURES)
    return x, gd.argmax(x[:, :CLASSES], dim=1)


X, Y = make_data()


class Net(gd.nn.Module):
    def __init__(self, p=0.2):
        super().__init__()
        self.a, self.drop, self.b = gd.nn.Linear(FEATURES, 8), gd.nn.Dropout(p), gd.nn.Linear(8, CLASSES)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.b(self.drop(gd.tanh(self.a(x))))


def make_net(python=True, p=0.2):
    gd.manual_seed(3)
    if python:
        return Net(p)
    return gd.nn.Sequential(gd.nn.Linear(FEATURES, 8), gd.nn.Tanh(), gd.nn.Dropout(p), gd.nn.Linear(8, CLASSES))


def values(net):
    return [p.tolist() for p in net.parameters()]


def quiet(net, *data, **options):
    return net.fit(*(data or (X, Y)), verbose=0, **{"seed": 5, **options})


class Compile(unittest.TestCase):
    def test_text_object_function_and_layer_give_the_same_bits(self):
        def loss(output, target):
            return gd.cross_entropy(output, target)
        found = []
        for python in (True, False):
            for make in (lambda n: dict(optimizer="adamw lr=0.01", loss="cross_entropy"),
                         lambda n: dict(optimizer=gd.optim.AdamW(n, lr=0.01), loss=gd.nn.CrossEntropyLoss()),
                         lambda n: dict(optimizer=gd.optim.AdamW(n.parameters(), 0.01), loss=loss),
                         lambda n: dict(optimizer="AdamW lr=0.01", loss=gd.cross_entropy, metrics="accuracy")):
                net = make_net(python)
                net.compile(**make(net))
                quiet(net, epochs=2)
                found.append(values(net))
        self.assertTrue(all(f == found[0] for f in found))
        self.assertNotEqual(found[0], values(make_net()))

    def test_compiled_objects_can_be_reached(self):
        net = make_net()
        opt = gd.optim.SGD(net, lr=0.5)
        schedule = gd.optim.lr_scheduler.StepLR(opt, 2, gamma=0.5)
        net.compile(opt, "cross_entropy", schedule=schedule)
        self.assertIs(net.optimizer, opt)
        self.assertIs(net.lr_scheduler, schedule)
        quiet(net, epochs=1, batch_size=30)
        self.assertEqual((schedule.last_epoch, opt.param_groups[0]["lr"]), (3, 0.25))
        net.compile("sgd lr=0.25", "cross_entropy")
        self.assertIsInstance(net.optimizer, gd.optim.SGD)
        self.assertEqual(net.optimizer.param_groups[0]["lr"], 0.25)
        net.compile("sgd lr=0.25", "cross_entropy", schedule="step size=2")
        self.assertIsInstance(net.lr_scheduler, gd.optim.lr_scheduler.StepLR)
        self.assertIs(net.lr_scheduler.optimizer, net.optimizer)
        net.optimizer = "mine"  # as programs for PyTorch do
        self.assertEqual(net.optimizer, "mine")
        quiet(net, epochs=1, callbacks=[gd.callbacks.LearningRateScheduler(lambda epoch, lr: lr)])

    def test_clipping_accumulation_precision_and_schedules_count(self):
        found = []
        for options in ({}, {"clip_norm": 0.01}, {"clip_value": 0.001}, {"accumulate": 2}, {"precision": gd.bfloat16},
                        {"schedule": "step size=1 gamma=0.5"}):
            net = make_net(p=0)
            net.compile("sgd lr=0.5", "cross_entropy", **options)
            quiet(net, epochs=1)
            found.append(str(values(net)))
        self.assertEqual(len(set(found)), len(found))

    def test_mistakes_say_what_would_fit(self):
        net = make_net()
        plateau = gd.optim.lr_scheduler.ReduceLROnPlateau
        for options, kind, text in [
                ({"loss": "no_such"}, ValueError, "there are .*cross_entropy"),
                ({"loss": "sparse_categorical_crossentropy"}, ValueError, "'cross_entropy', which takes logits"),
                ({"loss": 3}, TypeError, "function of output and target"),
                ({"loss": gd.nn.CrossEntropyLoss(reduction="none")}, ValueError, "one number"),
                ({"optimizer": "no_such"}, ValueError, "adam"),
                ({"optimizer": 3}, TypeError, "Optimizer"),
                ({"optimizer": gd.optim.SGD(make_net())}, ValueError, ""),
                ({"metrics": ["no_such"]}, ValueError, "accuracy"),
                ({"metrics": [3]}, TypeError, "a metric is"),
                ({"precision": "f8"}, ValueError, "f8"),
                ({"schedule": plateau(gd.optim.SGD(net))}, TypeError, "callback")]:
            with self.assertRaisesRegex(kind, text):
                net.compile(**options)
        with self.assertRaisesRegex(RuntimeError, r"the Net is not compiled; call net.compile"):
            quiet(make_net())
        with self.assertRaisesRegex(RuntimeError, r"evaluate: the Net is not compiled"):
            make_net().evaluate(X, Y)
        self.assertEqual(make_net().predict(X).shape, (SAMPLES, CLASSES))
        net.compile("sgd")
        with self.assertRaisesRegex(RuntimeError, "without a loss"):
            quiet(net)


class Fit(unittest.TestCase):
    def setUp(self):
        self.net = make_net()
        self.net.compile("adam lr=0.01", "cross_entropy", "accuracy")

    def test_history(self):
        h = quiet(self.net, epochs=4, validation_split=0.2)
        self.assertEqual(list(h.history), ["loss", "accuracy", "val_loss", "val_accuracy", "lr", "seconds"])
        self.assertTrue(all(len(column) == 4 for column in h.history.values()))
        self.assertLess(h.history["loss"][-1], h.history["loss"][0])
        self.assertEqual((h.epoch, h.stopped, h.interrupted, h.model is self.net), ([0, 1, 2, 3], None, False, True))
        self.assertRegex(repr(h), "4 epochs: loss")
        with tempfile.TemporaryDirectory() as folder:
            h.plot(os.path.join(folder, "curve.svg"))
            with open(os.path.join(folder, "curve.svg")) as file:
                self.assertIn("<svg", file.read())
        sys.modules["matplotlib"] = None  # it cannot be imported
        try:
            with self.assertRaisesRegex(ImportError, "curve.svg"):
                h.plot()
        finally:
            del sys.modules["matplotlib"]

    def test_the_net_is_traced_once_for_each_shape(self):
        quiet(self.net, epochs=3, batch_size=30)
        self.assertLessEqual(self.net.calls, 3)
        net = make_net()
        net.compile("adam", "cross_entropy")
        quiet(net, epochs=3, batch_size=30, jit=False)
        self.assertEqual(net.calls, 9)

    def test_data_of_all_kinds(self):
        pairs = {"tensors": (X, Y), "pair": ((X, Y.tolist()),), "lists": (X.tolist(), gd.tensor(Y.tolist())),
                 "dataset": (dataset(X, Y),)}
        if data is not None:
            class Samples:
                def __len__(self):
                    return SAMPLES

                def __getitem__(self, i):
                    return X[i], Y[i]
            pairs["program"] = (Samples(),)
        try:
            import numpy
            pairs["numpy"] = (numpy.asarray(X).astype("f8"), numpy.asarray(Y))
        except ImportError:
            pass
        found = {}
        for name, given in pairs.items():
            net = make_net()
            net.compile("sgd lr=0.1", "cross_entropy")
            quiet(net, *given, epochs=1, validation_data=given[0] if len(given) == 1 else (X, Y))
            found[name] = values(net)
        self.assertTrue(all(f == found["tensors"] for f in found.values()), found.keys())
        if data is not None:
            quiet(self.net, data.DataLoader(dataset(X, Y), batch_size=30, shuffle=True, num_workers=2), epochs=1)
            with self.assertRaisesRegex(TypeError, "own batch size"):
                quiet(self.net, data.DataLoader(dataset(X, Y)), batch_size=3)
        for given, kind, text in [((3,), TypeError, "tensor"), ((dataset(X, Y), Y), TypeError, "targets"),
                                 ((X, Y[:5]), ValueError, "")]:
            with self.assertRaisesRegex(kind, text):
                quiet(self.net, *given)

    def test_several_inputs_targets_and_weights(self):
        class Two(gd.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = gd.nn.Linear(FEATURES, CLASSES)

            def forward(self, a, b):
                return self.fc(a), self.fc(b)
        net = Two()
        seen = []

        def loss(y1, y2, t1, t2):
            seen.append((t1.shape, t2.shape))
            return gd.cross_entropy(y1, t1) + gd.cross_entropy(y2, t2)
        net.compile("sgd", loss)
        h = quiet(net, (X, X), (Y, Y), epochs=1)
        self.assertTrue(seen and math.isfinite(h.history["loss"][0]))
        found = []
        for options in ({}, {"sample_weight": gd.ones(SAMPLES)}, {"sample_weight": gd.arange(SAMPLES) % 2.0},
                        {"class_weight": {0: 1.0, 1: 5.0, 2: 1.0}}, {"class_weight": [1, 5, 1]}):
            net = make_net(p=0)
            net.compile("sgd lr=0.5", gd.nn.CrossEntropyLoss())
            quiet(net, epochs=1, shuffle=False, **options)
            found.append([round(v, 5) for v in net.b.bias.tolist()])
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[3], found[4])
        self.assertEqual(len({str(f) for f in found}), 3)

    def test_step_of_the_program(self):
        def step(net, batch):
            x, y = batch
            loss = gd.cross_entropy(net(x), y)
            loss.backward()
            return loss
        quiet(self.net, epochs=2)
        other = make_net()
        other.compile("adam lr=0.01")
        h = quiet(other, epochs=2, step=step)
        self.assertEqual(values(self.net), values(other))
        self.assertEqual(list(h.history)[0], "loss")
        with self.assertRaisesRegex(TypeError, "must return the loss"):
            quiet(other, step=lambda net, batch: None)
        with self.assertRaisesRegex(RuntimeError, "backward"):
            quiet(other, step=lambda net, batch: gd.cross_entropy(net(batch[0]), batch[1]))

    def test_evaluate_and_predict(self):
        quiet(self.net, epochs=5)
        loss, accuracy = self.net.evaluate(X, Y)
        self.assertEqual(self.net.evaluate((X, Y), return_dict=True), {"loss": loss, "accuracy": accuracy})
        y = self.net.predict(X, batch_size=7)
        self.assertEqual(y.shape, (SAMPLES, CLASSES))
        self.net.eval()
        self.assertLess(gd.max(gd.abs(y - self.net(X))).item(), 1e-6)
        self.assertAlmostEqual((y.argmax(1) == Y).float().mean().item(), accuracy, 6)
        self.net.compile("adam", "cross_entropy")
        self.assertIsInstance(self.net.evaluate(X, Y), float)

    def test_sizes_that_the_first_batch_tells(self):
        net = gd.nn.Sequential(gd.nn.Linear(None, 8), gd.nn.Tanh(), gd.nn.Linear(None, CLASSES))
        net.compile("adam", "cross_entropy")
        self.assertIsNone(net.optimizer)
        quiet(net, epochs=1)
        self.assertEqual(len(net.optimizer.param_groups[0]["params"]), 4)

    def test_exceptions_of_the_program_are_raised_with_their_traceback(self):
        def fails_here(*arguments):
            raise KeyError("mine")

        class Fails(gd.callbacks.Callback):
            on_epoch_end = fails_here

        class BadNet(Net):
            forward = fails_here
        for net, options, call in [
                (make_net(), {"loss": fails_here}, {}), (make_net(), {"metrics": [fails_here], "loss": "cross_entropy"}, {}),
                (make_net(), {"loss": "cross_entropy"}, {"callbacks": [Fails()]}),
                (make_net(), {"loss": "cross_entropy"}, {"step": fails_here}), (BadNet(), {"loss": "cross_entropy"}, {})]:
            net.compile("sgd", **options)
            try:
                quiet(net, epochs=1, **call)
            except KeyError:
                self.assertIn("fails_here", traceback.format_exc())
            else:
                self.fail("no exception")
        quiet(self.net, epochs=1)  # nothing is left

    def test_what_cannot_be_traced_runs_eagerly(self):
        def loss(output, target):
            return gd.cross_entropy(output, target) * (2.0 if output.sum().item() > 0 else 1.0)
        self.net.compile("sgd", loss)
        self.assertTrue(math.isfinite(quiet(self.net, epochs=1).history["loss"][0]))

    def test_same_seed_same_bits(self):
        found = []
        for _ in range(2):
            net = make_net()
            net.compile("sgd lr=0.1", "cross_entropy")
            quiet(net, epochs=2, seed=11)
            found.append(values(net))
        self.assertEqual(found[0], found[1])

    def test_ctrl_c_ends_after_the_batch_and_returns_the_history(self):
        class Press(gd.callbacks.Callback):
            def on_train_batch_end(self, batch, logs):
                if self.event.step == 4:
                    os.kill(os.getpid(), signal.SIGINT)
        h = quiet(self.net, epochs=100, batch_size=30, callbacks=[Press()])
        self.assertEqual((h.interrupted, h.stopped, len(h.epoch)), (True, "Ctrl-C", 2))
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_fit_in_several_threads_at_once(self):
        found = {}

        lock = threading.Lock()

        def guarded(i):
            with lock:
                net = make_net()
            net.compile("sgd lr=0.1", gd.cross_entropy)
            net.fit(X, Y, epochs=3, seed=4, verbose=0, interrupt=False)
            found[i] = values(net)
        threads = [threading.Thread(target=guarded, args=(i,)) for i in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertTrue(all(found[i] == found[0] for i in range(4)))

    def test_nothing_is_left(self):
        def work():
            net = make_net()
            net.compile(gd.optim.Adam(net, lr=0.01), lambda o, t: gd.cross_entropy(o, t) + 0 * net.b.bias.sum(),
                        ["accuracy", lambda o, t: (o.argmax(1) == t).float().mean()])
            h = quiet(net, epochs=2, callbacks=[gd.callbacks.LambdaCallback(on_epoch_end=lambda e, logs: net.training)],
                      validation_split=0.2)
            net.evaluate(X, Y)
            net.predict(X)
            repr(h)
        work()
        gc.collect()
        before = gd._core._live_objects()
        work()
        gc.collect()
        self.assertEqual(gd._core._live_objects(), before)


def npy(tensor, letter):
    head = f"{{'descr': '<{letter}', 'fortran_order': False, 'shape': {tuple(tensor.shape)}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + bytes(memoryview(tensor).cast("B"))


def dataset(x, y):
    """A dataset of the library."""
    if data is not None:
        return data.TensorDataset(x, y)
    cls = type("Arrays", (gd._core.Dataset,), {"__init__": gd._core._records("dataset")["Numpy"][1]})
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "data.npz")
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("x.npy", npy(x, "f4"))
            file.writestr("y.npy", npy(y, "i8"))
        return cls(path, names="x y")


class Callbacks(unittest.TestCase):
    def setUp(self):
        self.net = make_net()
        self.net.compile("sgd lr=0.1", "cross_entropy", "accuracy")

    def test_events_come_in_order_with_their_logs(self):
        seen = []

        class Watch(gd.callbacks.Callback):
            def on_train_begin(self, logs=None):
                seen.append("begin")

            def on_epoch_begin(self, epoch, logs=None):
                seen.append(("epoch", epoch))
                self.old = self.event

            def on_train_batch_end(self, batch, logs=None):
                seen.append((batch, sorted(logs), logs["loss"] > 0, self.event.step, self.event.batches))
                self.kept = logs

            def on_epoch_end(self, epoch, logs=None):
                seen.append((epoch, sorted(logs), self.model is net))

            def on_train_end(self, logs=None):
                seen.append("end")
        net, watch, unread = self.net, Watch(), []
        quiet(net, epochs=1, batch_size=45, validation_split=0.5, callbacks=watch)
        names, both = ["accuracy", "loss", "lr", "seconds"], ["accuracy", "loss", "lr", "seconds", "val_accuracy", "val_loss"]
        self.assertEqual(seen, ["begin", ("epoch", 0), (0, names, True, 1, 1), (0, both, True), "end"])
        self.assertGreater(watch.kept["loss"], 0)
        self.assertIsNone(watch.event)
        with self.assertRaisesRegex(RuntimeError, "is over"):
            watch.old.stop("late")
        quiet(net, epochs=1, callbacks=[gd.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: unread.append(logs))])
        with self.assertRaisesRegex(RuntimeError, "in the callback only"):
            unread[0]["loss"]
        for call in (lambda: gd._core._event_values(12345), lambda: gd._core._event_stop(12345, "x"),
                     lambda: gd._core._metric_sum(12345, "x")):
            with self.assertRaisesRegex(RuntimeError, "function that got it"):
                call()

    def test_stopping(self):
        class Stop(gd.callbacks.Callback):
            def __init__(self, how):
                self.how = how

            def on_epoch_end(self, epoch, logs):
                if epoch == 1:
                    self.how(self)
        for how, reason in ((lambda c: setattr(c.model, "stop_training", True), "Stop has stopped it"),
                            (lambda c: setattr(c, "stop_training", True), "Stop has stopped it"),
                            (lambda c: c.event.stop("enough"), "enough")):
            h = quiet(self.net, epochs=9, callbacks=[Stop(how)])
            self.assertEqual((len(h.epoch), h.stopped, h.interrupted), (2, reason, False))
        self.assertNotIn("stop_training", self.net.__dict__)

    def test_the_librarys_own(self):
        with tempfile.TemporaryDirectory() as folder:
            path, board = os.path.join(folder, "log.csv"), os.path.join(folder, "board")
            own = gd.callbacks
            h = quiet(self.net, epochs=9, callbacks=[own.CSVLog(path), own.TensorBoard(board), own.StopOnNaN(),
                                                     own.EarlyStopping(monitor="loss", min_delta=10.0, patience=2),
                                                     own.Checkpoint(folder), own.LearningRateScheduler(lambda e, lr: 0.5 ** e)])
            self.assertEqual((len(h.epoch), h.history["lr"]), (3, [1, 0.5, 0.25]))
            self.assertIn("early_stopping", h.stopped) if "early" in h.stopped else self.assertIn("loss", h.stopped)
            with open(path) as file:
                self.assertEqual(file.readline().split(",")[:3], ["epoch", "step", "loss"])
            self.assertTrue(os.listdir(board))
            self.assertTrue([f for f in os.listdir(folder) if f.endswith(".safetensors")])
        self.assertIs(gd.callbacks.CSVLogger, gd.callbacks.CSVLog)
        self.assertTrue(issubclass(gd.callbacks.EarlyStopping, gd.callbacks.Callback))
        self.assertRegex(gd.callbacks.EarlyStopping.__doc__, "restores the weights")

    def test_mistakes(self):
        class Never(gd.callbacks.Callback):
            def on_test_begin(self, logs=None):
                pass
        for callbacks, kind, text in [([gd.callbacks.EarlyStopping], TypeError, "create an object"), ([3], TypeError, "Callback"),
                                      ([Never()], TypeError, "on_test_begin"),
                                      ([gd.callbacks.EarlyStopping("no_such")], ValueError, "accuracy")]:
            with self.assertRaisesRegex(kind, text):
                quiet(self.net, callbacks=callbacks)
        with self.assertRaisesRegex(AttributeError, "Checkpoint"):
            gd.callbacks.ModelCheckpoint


class Metrics(unittest.TestCase):
    def test_of_the_library(self):
        accuracy = gd.metrics.Accuracy()
        self.assertTrue(math.isnan(accuracy.value().item()))
        accuracy.update(gd.tensor([[1.0, 2.0], [3.0, 0.0]]), gd.tensor([1, 1]))
        accuracy.update([[1.0, 2.0]], [1])
        self.assertAlmostEqual(accuracy.value().item(), 2 / 3)
        accuracy.reset()
        accuracy.update([[1.0, 2.0]], [1], weight=[2.0])
        self.assertEqual((accuracy.value().item(), accuracy.name), (1.0, "accuracy"))
        self.assertEqual(gd.metrics.TopK(k=3).name, "top_3")
        self.assertEqual(gd.metrics.from_text("top_k k=2").name, "top_2")
        self.assertIsInstance(gd.metrics.from_text("MAE"), gd.metrics.MAE)

    def test_of_the_program(self):
        class MeanError(gd.metrics.Metric):
            def sums(self, output, target, weight):
                return {"error": gd.sum(gd.abs(output - target)), "count": gd.tensor(float(output.numel()))}

            def result(self, sums):
                return sums["error"] / sums["count"]

        def largest(output, target):
            return gd.max(gd.abs(output - target), axis=1)
        x, y = gd.arange(12).to(gd.float32).reshape(6, 2), gd.zeros(6, 2)
        net = gd.nn.Identity()
        net.compile(None, "mse", ["mae", MeanError(), largest, lambda o, t: gd.mean(gd.abs(o - t))])
        values = net.evaluate(x, y, batch_size=4, return_dict=True)
        self.assertEqual(list(values), ["loss", "mae", "MeanError", "largest", "lambda"])
        self.assertEqual(values["mae"], values["MeanError"])
        self.assertAlmostEqual(values["mae"], values["lambda"], 6)
        self.assertAlmostEqual(values["largest"], 6.0)
        own = MeanError("own error")
        self.assertTrue(math.isnan(own.value().item()))
        own.update(x, y)
        self.assertEqual((own.value().item(), own.name), (values["mae"], "own_error"))

    def test_mistakes(self):
        net = make_net()
        net.compile("sgd", "cross_entropy", [lambda o, t: gd.zeros(4)])
        with self.assertRaisesRegex(ValueError, "one number"):
            quiet(net)
        with self.assertRaisesRegex(TypeError, "base class"):
            gd.metrics.Metric()
        with self.assertRaises(ValueError):
            gd.metrics.Accuracy().update(gd.ones(2, 2), gd.ones(3))


class Progress(unittest.TestCase):
    def shown(self, stream, **options):
        net, before = make_net(), sys.stderr
        net.compile("sgd", "cross_entropy")
        sys.stderr = stream
        try:
            net.fit(X, Y, epochs=2, seed=1, **options)
        finally:
            sys.stderr = before
        return stream

    def test_goes_through_sys_stderr(self):
        lines = self.shown(io.StringIO()).getvalue()
        self.assertEqual(lines.count("\n"), 2)
        self.assertIn("epoch 2/2", lines)
        self.assertEqual(self.shown(io.StringIO(), verbose=0).getvalue(), "")
        self.assertIn("\r", self.shown(io.StringIO(), verbose=1).getvalue())

        class Terminal(io.StringIO):
            def isatty(self):
                return True
        self.assertIn("\r", self.shown(Terminal()).getvalue())

        class Broken(io.StringIO):
            def write(self, text):
                raise BrokenPipeError("gone")
        with self.assertRaises(BrokenPipeError):
            self.shown(Broken())
        with self.assertRaisesRegex(ValueError, "verbose"):
            self.shown(io.StringIO(), verbose=7)

    def test_notebooks_show_html_that_is_updated(self):
        import types

        pages = []
        shell = types.SimpleNamespace(kernel=True)
        display = types.ModuleType("IPython.display")
        display.HTML = lambda text: text
        display.display = lambda page, display_id: (pages.append(page), types.SimpleNamespace(update=pages.append))[1]
        ipython = types.ModuleType("IPython")
        ipython.get_ipython, ipython.display = lambda: shell, display
        sys.modules["IPython"], sys.modules["IPython.display"] = ipython, display
        try:
            self.assertEqual(self.shown(io.StringIO()).getvalue(), "")
        finally:
            del sys.modules["IPython"], sys.modules["IPython.display"]
        self.assertGreater(len(pages), 2)  # bars, of which the end of the epoch is left
        self.assertEqual((pages[-1].count("epoch 1/2"), pages[-1].count("epoch 2/2"), pages[-1].count("loss")), (1, 1, 2))
        self.assertNotIn("\x1b", "".join(pages))


PROGRAM = '''
import sys
sys.path.insert(0, {folder!r})
import gradus as gd
from test_fit import Net, X, Y
class Count(gd.callbacks.Callback):
    total = 0
    def on_train_batch_end(self, batch, logs):
        self.total += batch
        if self.event.step == int(sys.argv[2]):
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)
    def state_dict(self): return {{"total": self.total, "list": [1, "a"]}}
    def load_state_dict(self, state): self.total = state["total"]; assert state["list"] == [1, "a"]
gd.manual_seed(3)
net = Net()
net.compile(gd.optim.AdamW(net, lr=0.01), lambda o, t: gd.cross_entropy(o, t),
            ["accuracy", lambda o, t: (o.argmax(1) == t).float().mean()], schedule=None)
count = Count()
h = net.fit(X, Y, epochs=3, seed=5, batch_size=16, verbose=0, resume=sys.argv[1], validation_split=0.2,
            callbacks=[count, gd.callbacks.Checkpoint(sys.argv[1], every_steps=1)])
rows = {{k: v for k, v in h.history.items() if k != "seconds"}}
print([p.tolist() for p in net.parameters()], count.total, rows)
'''


class Checkpoints(unittest.TestCase):
    def run_program(self, folder, kill):
        here = os.path.dirname(os.path.abspath(__file__))
        done = subprocess.run([sys.executable, "-c", PROGRAM.format(folder=here), folder, str(kill)], capture_output=True,
                              text=True)
        return done.returncode, done.stdout, done.stderr

    def test_a_killed_run_ends_with_the_same_bits(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            code, whole, errors = self.run_program(one, -1)
            self.assertEqual(code, 0, errors)
            self.assertEqual(self.run_program(two, 3)[0], -signal.SIGKILL)
            self.assertEqual(self.run_program(two, 8)[0], -signal.SIGKILL)
            code, resumed, errors = self.run_program(two, -1)
            self.assertEqual((code, resumed), (0, whole), errors)

    def test_bad_state_of_a_callback_is_raised(self):
        class Bad(gd.callbacks.Callback):
            def state_dict(self):
                return {"x": self.x}

            def load_state_dict(self, state):
                raise LookupError("no thanks")
        with tempfile.TemporaryDirectory() as folder:
            for x, failure in ((gd.ones(2), TypeError), (3, LookupError)):
                net, bad = make_net(), Bad()
                net.compile("sgd", "cross_entropy")
                bad.x = x
                if failure is TypeError:
                    continue  # a save that fails is a warning of the checkpoint
                quiet(net, epochs=1, callbacks=[bad, gd.callbacks.Checkpoint(folder)])
                with self.assertRaises(failure):
                    quiet(net, epochs=2, resume=folder, callbacks=[bad, gd.callbacks.Checkpoint(folder)])


class StateFiles(unittest.TestCase):
    def test_modules_and_optimizers(self):
        net = make_net()
        opt = gd.optim.Adam(net, lr=0.25)
        net.compile(opt, "cross_entropy")
        quiet(net, epochs=1)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.safetensors")
            gd.save_state(path, net=net, adam=opt, extra=gd.arange(3))
            self.assertIn("net.a.weight", gd.load(path))
            self.assertIn("adam.a.weight.exp_avg", gd.load(path))
            other = Net()
            adam, extra = gd.optim.Adam(other), gd.zeros(3, dtype=gd.int64)
            gd.load_state(path, net=other, adam=adam, extra=extra)
            self.assertEqual((values(other), extra.tolist(), adam.param_groups[0]["lr"]), (values(net), [0, 1, 2], 0.25))
            self.assertEqual(adam.state_dict()["state"]["a.bias"]["exp_avg"].tolist(),
                             opt.state_dict()["state"]["a.bias"]["exp_avg"].tolist())
            third = Net()
            gd.load_state(path, {"": third}, prefix="net.", partial=True)
            self.assertEqual(values(third), values(net))
            report = gd.load_state(path, {"": gd.nn.Linear(FEATURES, 8)}, prefix="net.a.", partial=True)
            self.assertEqual((report.loaded, report.missing), (2, 0))
            with self.assertRaisesRegex(TypeError, "'x'"):
                gd.save_state(path, x=3)
            with self.assertRaisesRegex(ValueError, "no parts"):
                gd.save_state(path)
            with self.assertRaises(OSError):
                gd.load_state(os.path.join(folder, "none"), net=net)
            with self.assertRaises(KeyError):
                gd.load_state(path, net=net, rename=lambda name: {}[name])

    def test_weights(self):
        net, other = make_net(), Net()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net.safetensors")
            net.save_weights(path, checksum=True)
            self.assertEqual(set(gd.load(path)), set(net.state_dict()))
            self.assertIsNone(other.load_weights(path))
            self.assertEqual(values(other), values(net))
            report = gd.nn.Linear(FEATURES, 8).load_weights(path, partial=True, rename=lambda n: n.removeprefix("a."))
            self.assertEqual(report.loaded, 2)

    def test_files_of_pytorch(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "pytorch")
        for name in ("archive_2.pt", "older_5.pt"):
            tensors = gd.load(os.path.join(folder, name))
            self.assertEqual(tensors["model_state.lstm.bias"].tolist(), [0.25, -1, 3])
            self.assertEqual(tensors["dtypes.bf16"].dtype, gd.bfloat16)
        path = os.path.join(folder, "module_dict.pt")
        net = gd.nn.BatchNorm2d(2)
        with self.assertRaisesRegex(gd.Error, 'all fit with prefix="state_dict.module.norm."'):
            net.load_weights(path)
        net.load_weights(path, prefix="state_dict.module.norm.")
        self.assertEqual(net.running_var.tolist(), [0, 1])
        scale = gd.zeros(2)
        gd.load_state(path, factor=scale, rename="state_dict.module.scale=factor, *=")
        self.assertEqual(scale.tolist(), [0, 1])


class Habits(unittest.TestCase):
    """A program in Keras's style and a loop in PyTorch's end with the same bits."""

    def test_keras_and_pytorch(self):
        batch, epochs, found = 30, 3, []
        for jit in (False, True):
            keras = make_net(p=0)
            keras.compile(optimizer="sgd lr=0.1 momentum=0.9", loss="cross_entropy", metrics=["accuracy"])
            history = keras.fit(X, Y, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, jit=jit)
            found.append(values(keras))
        self.assertEqual(found[0], found[1])
        net = make_net(p=0)
        opt = gd.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        criterion = gd.nn.CrossEntropyLoss()
        losses = []
        for _ in range(epochs):
            total = 0.0
            for i in range(0, SAMPLES, batch):
                opt.zero_grad()
                loss = criterion(net(X[i:i + batch]), Y[i:i + batch])
                loss.backward()
                opt.step()
                total += loss.item() * batch
            losses.append(total / SAMPLES)
        self.assertEqual(values(net), values(keras))
        for mine, theirs in zip(history.history["loss"], losses):
            self.assertAlmostEqual(mine, theirs, 6)

    @unittest.skipUnless(hasattr(gd, "jit") and data is not None, "gradus.jit or gradus.data is not there")
    def test_with_dropout_shuffled_loaders_and_a_compiled_step(self):
        def loader():
            gd.manual_seed(5)
            return data.DataLoader(dataset(X, Y), 30, shuffle=True, seed=3)
        keras = make_net()
        keras.compile("adam", "cross_entropy")
        keras.fit(loader(), epochs=2, verbose=0)
        net = make_net()
        opt, criterion = gd.optim.Adam(net), gd.nn.CrossEntropyLoss()

        @gd.jit
        def step(x, y):
            loss = criterion(net(x), y)
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss
        batches = loader()
        for _ in range(2):
            for x, y in batches:
                step(x, y)
        self.assertEqual(values(net), values(keras))


if __name__ == "__main__":
    unittest.main()
