"""gradus.jit: traces, static arguments, structures of results, messages, training steps, threads."""

import copy
import gc
import inspect
import pickle
import sys
import threading
import time
import traceback
import unittest
import weakref

import gradus as gd
from gradus import _core

try:
    import numpy as np
except ImportError:
    np = None

HERE = __file__


def line():
    """The line of the caller."""
    return inspect.currentframe().f_back.f_lineno


class Clean(unittest.TestCase):
    """Leaves no object of the library behind."""

    def run(self, result=None):
        gc.collect()
        before = _core._live_objects()
        super().run(result)
        gc.collect()
        if result is not None and not result.failures and not result.errors:
            left = _core._live_objects() - before
            if left:
                result.addFailure(self, (AssertionError, AssertionError(f"{left} objects are left"), None))
        return result


class Traces(Clean):
    def test_a_function_is_traced_once_for_each_shape_and_dtype(self):
        calls = []

        @gd.jit
        def double(x):
            calls.append(x.shape)
            return x * 2

        for n in (2, 3, 2, 3):
            self.assertEqual(double(gd.ones(n)).tolist(), [2] * n)
        double(gd.ones(2, dtype=gd.float64))
        self.assertEqual((double.traces, len(calls)), (3, 3))

    def test_decorator_and_function_have_options_and_the_names_of_the_function(self):
        @gd.jit(level=0, plans=1)
        def named(x, y: int = 2):
            """What it does."""
            return x + y

        self.assertEqual((named.__name__, named.__doc__, named.__wrapped__.__name__), ("named", "What it does.", "named"))
        self.assertEqual(str(inspect.signature(named)), "(x, y: int = 2)")
        self.assertIsInstance(named, gd.Jit)
        for n in (1, 2, 1, 2):
            named(gd.ones(n))
        self.assertEqual(named.traces, 4)  # one plan is kept
        self.assertEqual(gd.jit(lambda x: -x, level=1)(gd.ones(1)).item(), -1)
        for wrong in (lambda: gd.jit(3), lambda: gd.jit(named.__wrapped__, level=7), lambda: gd.jit(plans=0)(abs)):
            with self.assertRaises((TypeError, ValueError)):
                wrong()

    def test_static_arguments_are_compared_by_value_and_type(self):
        @gd.jit
        def scaled(x, by, *, also=()):
            return x * by + len(also)

        x = gd.ones(2)
        for by in (2, 2.0, True, 1, 1.0, -1, 0.0, -0.0):
            self.assertEqual(scaled(x, by).tolist(), [float(by)] * 2)
        self.assertEqual(scaled.traces, 8)
        for also in ((), (1,), [1], {"a": 1}, "a", None and ()):
            if also is not None:
                scaled(x, 2, also=also)
        traces = scaled.traces
        for also in ((), (1,), [1], {"a": 1}, "a"):
            scaled(x, 2, also=also)
        self.assertEqual(scaled.traces, traces)
        self.assertEqual(scaled(x, float("nan")).isnan().all().item(), True)
        scaled(x, float("nan"))
        self.assertEqual(scaled.traces, traces + 1)

    def test_values_with_one_hash_are_told_apart(self):
        class Same:
            def __init__(self, n):
                self.n = n

            def __hash__(self):
                return 1

            def __eq__(self, other):
                return self.n == other.n

        f = gd.jit(lambda x, s: x * s.n)
        self.assertEqual([f(gd.ones(1), Same(n)).item() for n in (1, 2, 1, 2)], [1, 2, 1, 2])
        self.assertEqual(f.traces, 2)

    def test_what_is_not_hashable_is_refused(self):
        with self.assertRaisesRegex(TypeError, "set.*neither a tensor nor hashable"):
            gd.jit(lambda x, s: x)(gd.ones(1), {1})

    def test_nested_arguments_and_results(self):
        @gd.jit
        def swap(pair, more):
            a, b = pair
            return {"b": b * 2, "a": [a + more["k"][0], "text", None, (1.5, more["n"])]}

        r = swap((gd.ones(1), gd.zeros(2)), {"k": [gd.ones(1)], "n": 3})
        self.assertEqual(list(r), ["b", "a"])
        self.assertEqual((r["b"].tolist(), r["a"][0].tolist(), r["a"][1:]), ([0, 0], [2], ["text", None, (1.5, 3)]))

    def test_other_shapes_may_give_another_structure(self):
        f = gd.jit(lambda x: [x * i for i in range(x.shape[0])] if x.shape[0] < 3 else {"many": x.shape})
        for _ in range(2):
            self.assertEqual([len(f(gd.ones(n))) for n in (1, 2)], [1, 2])
            self.assertEqual(f(gd.ones(4)), {"many": (4,)})
        self.assertEqual(f.traces, 3)

    def test_results_without_tensors_and_no_result(self):
        seen = gd.zeros(2)

        @gd.jit
        def count(x):
            seen.add_(x)

        self.assertIsNone(count(gd.ones(2)))
        self.assertIsNone(count(gd.ones(2)))
        self.assertEqual((seen.tolist(), count.traces), ([2, 2], 1))

    @unittest.skipIf(np is None, "needs numpy")
    def test_arrays_are_tensors(self):
        f = gd.jit(lambda x, more: x + more[0])
        for k in range(3):
            self.assertEqual(f(np.full(2, k), [np.ones(2)]).tolist(), [k + 1, k + 1])
        self.assertEqual(f.traces, 1)

    def test_a_jit_in_a_jit_is_part_of_it(self):
        inner = gd.jit(lambda x, n: {"y": x * n, "n": n})
        outer = gd.jit(lambda x: inner(x, 3)["y"] + inner(x, 3)["n"])
        self.assertEqual([outer(gd.ones(1)).item() for _ in range(2)], [6, 6])
        self.assertEqual((outer.traces, inner.traces), (1, 0))
        w = gd.ones(2)
        alone = gd.jit(lambda n: [w * n])  # without tensors among its arguments
        self.assertEqual([gd.jit(lambda x: x + alone(3)[0])(gd.ones(2)).tolist(), alone._records()], [[4, 4], (0, 1)])
        with gd.Graph() as graph:
            y = alone(2)[0]
        self.assertEqual(gd.Session(graph).run(y).tolist(), [2, 2])
        self.assertEqual((alone.traces, alone.explain(), alone(4)[0].tolist()), (0, [], [4, 4]))

    def test_plans_that_are_dropped_leave_nothing(self):
        f = gd.jit(lambda x, n: (x * n, n), plans=4)
        x = gd.ones(1)
        for n in range(200):
            self.assertEqual(f(x, n)[1], n)
        self.assertLess(max(f._records()), 20)
        self.assertEqual([f(x, n)[1] for n in range(200)], list(range(200)))


@gd.jit
def negated(x):
    return -x


class Methods(Clean):
    class Net:
        def __init__(self, w):
            self.w = gd.full((2,), float(w))

        @gd.jit
        def step(self, x, k=1):
            """One step."""
            return self.w * x * k

    def test_each_object_has_its_own_plans(self):
        a, b = self.Net(2), self.Net(3)
        for _ in range(2):
            self.assertEqual((a.step(gd.ones(2)).tolist(), b.step(gd.ones(2), k=2).tolist()), ([2, 2], [6, 6]))
        self.assertEqual((a.step.traces, b.step.traces, self.Net.step.traces), (1, 1, 0))
        self.assertIn("mul", a.step.plan(gd.ones(2)))
        self.assertEqual(a.step.__doc__, "One step.")

    def test_an_object_is_freed_with_its_plans(self):
        net = self.Net(1)
        net.step(gd.ones(2))
        gone = weakref.ref(net)
        del net
        gc.collect()
        self.assertIsNone(gone())
        self.assertEqual(self.Net.step._methods, {})

    def test_methods_of_modules_and_static_methods(self):
        class Net(gd.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = gd.nn.Linear(3, 2)

            def forward(self, x):
                return self.fc(x)

            @gd.jit
            def predict(self, x, scale=1.0):
                return {"y": self(x) * scale}

            @staticmethod
            @gd.jit
            def twice(x):
                return x * 2

        net = Net()
        self.assertEqual(net.predict(gd.ones(4, 3), scale=2.0)["y"].tolist(), (net(gd.ones(4, 3)) * 2.0).tolist())
        self.assertEqual(net.twice(gd.ones(1)).item(), 2)
        f = gd.jit(lambda net, x: net(x))  # a module as an argument is itself
        f(net, gd.ones(4, 3))
        f(Net(), gd.ones(4, 3))
        f(net, gd.ones(4, 3))
        self.assertEqual(f.traces, 2)

        class Slots:
            __slots__ = ("w",)
            step = gd.jit(lambda self, x: x)

        with self.assertRaisesRegex(TypeError, "'__weakref__' to the __slots__ of Slots"):
            Slots().step(gd.ones(1))

    def test_copies_and_pickles_are_the_jit_itself(self):
        self.assertIs(copy.deepcopy({"f": negated})["f"], negated)
        self.assertIs(pickle.loads(pickle.dumps(negated)), negated)

    def test_a_jit_of_a_closure_over_itself_is_collected(self):
        def make():
            def f(x):
                return x if f is None else x * len(box)
            f = gd.jit(f)
            box = [f]
            f(gd.ones(1))
            return weakref.ref(f)

        gone = make()
        gc.collect()
        self.assertIsNone(gone())


class Messages(Clean):
    def fails(self, function, kind, *texts):
        with self.assertRaises(kind) as caught:
            function()
        for text in texts:
            self.assertIn(text, str(caught.exception))
        return caught.exception

    def test_reading_a_symbol_names_the_line_and_what_to_use(self):
        def branch(x):
            if x > 0:
                return x
            return -x

        at = f"{HERE}:{branch.__code__.co_firstlineno + 1}"
        x = gd.ones(())
        self.fails(lambda: gd.jit(branch)(x), RuntimeError, at, "no value while", "gd.where or gd.cond")
        for read in (float, int, gd.Tensor.item, gd.Tensor.tolist, gd.Tensor.numpy, memoryview):
            with self.subTest(read=read):
                self.fails(lambda: gd.jit(lambda x: read(x) and x)(x), (RuntimeError, BufferError),
                           f"{HERE}:{line() - 1}", "gd.where or gd.cond")

    def test_what_a_size_depends_on_data_cannot_be_iterated(self):
        self.fails(lambda: gd.jit(lambda x: [y for y in x[x > 0]])(gd.ones(3)), ValueError, "not known yet",
                   f"{HERE}:{line() - 1}")

    def test_a_symbol_that_leaks_says_where_it_was_made(self):
        left = []

        def leak(x):
            left.append(gd.relu(x))
            return left[-1]

        gone = []
        gd.jit(lambda x: gone.append(x + 1))(gd.ones(2))
        self.fails(lambda: gone[0] + 1, RuntimeError, f"{HERE}:{line() - 1}", "a graph that was freed")
        at = f"{HERE}:{leak.__code__.co_firstlineno + 1}"
        kept = gd.jit(leak)
        kept(gd.ones(2))
        for use in (lambda: left[0] + 1, lambda: left[0][0].item(), lambda: gd.jit(lambda x: x + left[0])(gd.ones(2)),
                    lambda: left[0].tolist()):
            self.fails(use, RuntimeError, at, "return it from the function")
        del kept

    def test_exceptions_of_the_function_arrive_with_their_traceback(self):
        class Mine(KeyError):
            pass

        def deep(x):
            raise Mine("here")

        f = gd.jit(lambda x: deep(x))
        for _ in range(2):
            try:
                f(gd.ones(1))
                self.fail("no exception")
            except Mine as mine:  # assertRaises would drop the traceback
                names = [frame.name for frame in traceback.extract_tb(mine.__traceback__)]
            self.assertEqual(names[-1], "deep")
        self.assertEqual(f.traces, 0)
        self.fails(lambda: gd.jit(lambda x: x.reshape(7))(gd.ones(2)), ValueError, "reshape")

    def test_explain_says_why_it_was_traced_again(self):
        @gd.jit
        def f(x, n=1, *, options=None):
            return drop(x) * n

        drop = gd.nn.Dropout(0.5)
        f(gd.ones(2, 4))
        self.assertEqual(f.explain(), [])
        f(gd.ones(3, 4))
        f(gd.ones(3, 4), n=2)
        f(gd.ones(3, 4), n=3)
        f(gd.ones(3, 4, dtype=gd.float64), n=3, options={"a": [1]})
        drop.eval()
        f(gd.ones(2, 4))
        with gd.autocast("bfloat16"):
            f(gd.ones(2, 4))
        self.assertEqual(f.explain(), [
            "argument x: shape (3, 4), was (2, 4)", "argument n: 2, was not given", "argument n: 3, was 2",
            "argument x: dtype float64, was float32; argument options: a dict of 1, was not given; "
            "argument options['a']: a list of 1, was not given; argument options['a'][0]: 1, was not given",
            "a module is in evaluation mode", "autocast is bf16, it was off"])

    def test_explain_knows_dropped_plans(self):
        f = gd.jit(lambda x: x, plans=1)
        for n in (1, 2, 1):
            f(gd.ones(n))
        self.assertIn("plans=1", f.explain()[1])

    def test_explain_knows_parameters_that_moved(self):
        net = gd.nn.Linear(2, 2)
        f = gd.jit(lambda x: net.weight.sum() + x)
        f(gd.ones(1))
        net.to(dtype=gd.float64)
        self.assertEqual(f(gd.ones(1)).dtype, gd.float64)
        self.assertIn("was replaced", f.explain()[0])

    def test_plan_is_a_text_and_does_not_run_the_function(self):
        w = gd.zeros(2)
        f = gd.jit(lambda x, n: w.add_(x * n))
        self.assertIn("feed 0", f.plan(gd.ones(2), 3))
        self.assertEqual((w.tolist(), f.traces), ([0, 0], 1))
        f(gd.ones(2), 3)
        self.assertEqual((w.tolist(), f.traces), ([3, 3], 1))


class Training(Clean):
    def net(self):
        gd.manual_seed(3)
        w = [gd.randn(8, 16).mul(0.3), gd.randn(16, 4).mul(0.3)]
        for t in w:
            t.requires_grad = True
        return w

    def train(self, make, steps=5):
        w = self.net()
        opt = gd.optim.AdamW(w, lr=0.05)

        def step(x, y):
            opt.zero_grad()
            loss = gd.cross_entropy(gd.relu(x @ w[0]) @ w[1], y)
            loss.backward()
            opt.step()
            return loss

        run = make(step)
        x, y = gd.randn(32, 8), gd.arange(32) % 4
        losses = [run(x, y).item() for _ in range(steps)]
        return losses, [t.tolist() for t in w], run

    def test_a_step_at_level_0_has_the_bits_of_the_eager_one(self):
        eager = self.train(lambda f: f)
        jitted = self.train(gd.jit(level=0))
        self.assertEqual(eager[:2], jitted[:2])
        self.assertLess(eager[0][-1], eager[0][0])
        self.assertEqual(jitted[2].traces, 1)

    def test_a_step_at_level_2_trains_as_well(self):
        eager, jitted = self.train(lambda f: f)[0], self.train(gd.jit)[0]
        for a, b in zip(eager, jitted):
            self.assertAlmostEqual(a, b, places=5)

    def test_gradients_of_a_call_flow_through_the_jit(self):
        w = gd.ones(3, requires_grad=True)
        f = gd.jit(lambda x: {"y": (w * x).sum(), "n": 1})
        f(gd.tensor([1.0, 2.0, 3.0]))["y"].backward()
        self.assertEqual(w.grad.tolist(), [1, 2, 3])
        x = gd.ones(3, requires_grad=True)
        g, = gd.grad([gd.jit(lambda x: x ** 3)(x).sum()], [x], create_graph=True)
        self.assertEqual(gd.grad([g.sum()], [x])[0].tolist(), [6, 6, 6])

    def test_autocast_inside_and_around(self):
        w = gd.ones(4, 4)

        @gd.jit
        def inside(x):
            with gd.autocast("bfloat16"):
                return x @ w

        around = gd.jit(lambda x: x @ w)
        x = gd.ones(2, 4)
        self.assertEqual((inside(x).dtype, around(x).dtype), (gd.bfloat16, gd.float32))
        with gd.autocast("bfloat16"):
            self.assertEqual(around(x).dtype, gd.bfloat16)
        self.assertEqual((around(x).dtype, around.traces), (gd.float32, 2))

    def test_modules_and_random_ops(self):
        gd.manual_seed(5)
        net = gd.nn.Sequential(gd.nn.Linear(4, 8), gd.nn.Dropout(0.5), gd.nn.Linear(8, 2))
        f = gd.jit(lambda x: net(x))
        x = gd.ones(3, 4)
        self.assertNotEqual(f(x).tolist(), f(x).tolist())
        net.eval()
        self.assertEqual(f(x).tolist(), f(x).tolist())
        self.assertEqual(f.traces, 2)
        self.assertEqual(gd.jit(net)(x).tolist(), net(x).tolist())


class Threads(Clean):
    def threads(self, count, work):
        failures = []

        def guarded(k):
            try:
                work(k)
            except BaseException:
                failures.append(traceback.format_exc())

        running = [threading.Thread(target=guarded, args=(k,), daemon=True) for k in range(count)]
        for t in running:
            t.start()
        for t in running:
            t.join(60)
        self.assertFalse(any(t.is_alive() for t in running), "a deadlock")
        self.assertEqual(failures, [])

    def test_threads_share_a_jit(self):
        f = gd.jit(lambda x, n: {"y": (x * n).sum(), "n": n, "shape": x.shape})

        def work(k):
            for i in range(60):
                size, n = 1 + (k + i) % 5, i % 3
                r = f(gd.ones(size), n)
                self.assertEqual((r["y"].item(), r["n"], r["shape"]), (size * n, n, (size,)))

        self.threads(4, work)
        self.assertEqual(f.traces, 15)

    def test_threads_that_trace_run_and_collect_garbage_do_not_wait_for_each_other(self):
        def run(rounds):
            f = gd.jit(lambda x, n: inner(x) * n, plans=4)
            inner = gd.jit(lambda x: x + 1)

            def work(k):
                for i in range(rounds):
                    self.assertEqual(f(gd.ones(1 + (i + k) % 3), i % 7).shape, (1 + (i + k) % 3,))
                    fresh = gd.jit(lambda x: [x, f])
                    fresh(gd.ones(1))
                    if i % 5 == k:
                        gc.collect()

            self.threads(4, work)

        import os

        run(2500 if os.environ.get("GRADUS_TEST_FULL") else 60)

    def test_descriptions_are_numbered_once_while_threads_compare_them(self):
        class Slow:
            """Its hash and its comparison are Python code, in which threads change."""

            def __init__(self, n):
                self.n = n

            def __hash__(self):
                time.sleep(0)
                return 1

            def __eq__(self, other):
                time.sleep(0)
                return self.n == other.n

        f = gd.jit(lambda x, s: (x * s.n, s.n), plans=4)

        def work(k):
            for i in range(60):
                n = 1 + (7 * k + i) % 30
                y, same = f(gd.ones(1), Slow(n))
                self.assertEqual((y.item(), same), (n, n))

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            self.threads(4, work)
        finally:
            sys.setswitchinterval(interval)

    def test_an_exception_in_one_thread_stays_there(self):
        def sometimes(x, n):
            if n % 2:
                raise ValueError(f"number {n}")
            return x * n

        f = gd.jit(sometimes, plans=2)

        def work(k):
            for i in range(40):
                n = 4 * i + k
                if n % 2:
                    with self.assertRaisesRegex(ValueError, f"number {n}$"):
                        f(gd.ones(1), n)
                else:
                    self.assertEqual(f(gd.ones(1), n).item(), n)

        self.threads(4, work)


if __name__ == "__main__":
    unittest.main()
