"""Graphs, sessions, branches, loops and ops that a program defines."""

import gc
import math
import unittest

import gradus as gd
from gradus import _core

try:
    import numpy as np
except ImportError:
    np = None


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

    def same(self, a, b, places=5):
        for x, y in zip(gd.asarray(a).reshape(-1).tolist(), gd.asarray(b).reshape(-1).tolist(), strict=True):
            self.assertAlmostEqual(x, y, places=places)


class Graphs(Clean):
    def line(self):
        """w x against y, with an assign that takes a step of gradient descent."""
        with gd.Graph() as graph:
            x = gd.placeholder((None, 3), name="x")
            y = gd.placeholder((None,), "float32", "y")
            with gd.name_scope("net"):
                w = gd.variable(gd.zeros(3), name="w")
                gd.variable(0.0, name="fixed", trainable=False)
            loss = gd.named(gd.mse_loss(x @ w, y), "loss")
            g, = gd.gradients(loss, w)
            train = gd.assign(w, w - 0.1 * g)
        return graph, x, y, w, loss, train

    def test_a_graph_is_built_and_run(self):
        graph, x, y, w, loss, train = self.line()
        self.assertEqual((x.shape, x.is_symbol, len(graph.variables)), ((None, 3), True, 1))
        session = gd.Session(graph)
        data = gd.randn(32, 3)
        target = data @ gd.tensor([1.0, 2.0, 3.0])
        for _ in range(300):
            r = session.run({"l": loss, "more": [train, ("loss",)]}, {x: data, "y": target})
        self.assertLess(r["l"].item(), 1e-6)
        self.assertEqual(r["l"].item(), r["more"][1][0].item())
        self.same(session.get("net/w"), [1, 2, 3], 2)
        self.same(session.get(w), r["more"][0])
        session.set(w, [0, 0, 1])
        self.assertEqual(session.run(loss, {x: [[1, 1, 1]], y: [3]}).item(), 4)
        self.assertEqual(session.run("net/w").tolist(), [0, 0, 1])
        self.assertEqual(session.run([], {}), [])

    def test_plans_memory_and_texts(self):
        graph, x, y, w, loss, train = self.line()
        with gd.Session(graph, level=0, memory_limit=1 << 20) as session:
            feeds = {x: gd.ones(2, 3), y: gd.ones(2)}
            self.assertIn("matmul", session.plan(loss, feeds))
            self.assertEqual(session.memory((loss, train), feeds).variable_bytes, 16)  # w and fixed
        self.assertIn("matmul", graph.text())
        self.assertIn("digraph", graph.dot())
        self.assertIs(graph.find("x").is_symbol, True)

    def test_mistakes(self):
        graph, x, y, w, loss, train = self.line()
        session = gd.Session(graph)
        for call, kind, text in (
                (lambda: session.run("none"), KeyError, "no symbol named 'none'"),
                (lambda: session.run(loss), ValueError, "'x' is needed and was not fed"),
                (lambda: session.run(loss, {x: gd.ones(2, 4), y: gd.ones(2)}), ValueError, "x"),
                (lambda: session.run(3), TypeError, "a symbol or its name"),
                (lambda: session.set(x, 1), ValueError, "variable"),
                (lambda: gd.Session(3), TypeError, "Graph"),
                (lambda: gd.Session(graph, level=9), ValueError, "level"),
                (lambda: float(loss), RuntimeError, "run the graph")):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                call()

    def test_minimize_and_after(self):
        with gd.Graph() as graph:
            x = gd.placeholder((None, 2), name="x")
            w, count = gd.variable(gd.ones(2), name="w"), gd.variable(gd.zeros(()), name="n", trainable=False)
            loss = ((x @ w) ** 2).sum()
            train = gd.minimize(gd.optim.Adam(graph.variables, lr=0.1), loss, clip_norm=1.0)
            counted = gd.assign(count, count + 1)
            with gd.after(counted):
                late = x * 2
            both = gd.group([train, counted])
        session = gd.Session(graph)
        losses = [session.run([loss, both], {x: gd.ones(1, 2)})[0].item() for _ in range(5)]
        self.assertEqual(sorted(losses, reverse=True), losses)
        session.run(late, {x: gd.ones(1, 2)})
        self.assertEqual(session.get(count).item(), 6)

    def test_a_tensor_outside_is_read_in_each_run(self):
        scale = gd.ones(())
        with gd.Graph() as graph:
            y = gd.placeholder((2,), name="x") * scale
        session = gd.Session(graph)
        self.assertEqual(session.run(y, {"x": gd.ones(2)}).tolist(), [1, 1])
        scale.fill_(3)
        self.assertEqual(session.run(y, {"x": gd.ones(2)}).tolist(), [3, 3])

    def test_a_graph_ends_with_its_block_also_after_an_exception(self):
        graph = gd.Graph()
        with self.assertRaises(ZeroDivisionError):
            with graph, gd.name_scope("a"):
                1 / 0
        self.assertFalse(gd.ones(2).is_symbol)
        with graph, gd.name_scope("b"):
            x = gd.placeholder((1,), name="x")
        self.assertIs(graph.find("b/x").is_symbol, x.is_symbol)

    @unittest.skipIf(np is None, "needs numpy")
    def test_arrays_are_fed(self):
        with gd.Graph() as graph:
            y = gd.placeholder((None,), gd.float32, "x") + 1
        self.assertEqual(gd.Session(graph).run(y, {"x": np.ones(2, np.float32)}).tolist(), [2, 2])


class Control(Clean):
    """Each program gives the same eagerly, in a jit and in a graph."""

    def everywhere(self, function, *inputs):
        eager = _core._flatten(function(*inputs))[1]
        jitted = _core._flatten(gd.jit(function)(*inputs))[1]
        with gd.Graph() as graph:
            fed = [gd.placeholder(x.shape, x.dtype) for x in inputs]
            fetches = function(*fed)
        run = _core._flatten(gd.Session(graph).run(fetches, dict(zip(fed, inputs))))[1]
        for a, b, c in zip(eager, jitted, run, strict=True):
            self.same(a, b)
            self.same(a, c)
        return eager

    def test_cond(self):
        def absolute(x):
            return gd.cond(x.sum() > 0, lambda a: {"r": a * 2, "n": [a.sum()]}, lambda a: {"r": -a, "n": [a.max()]}, x)

        self.assertEqual(self.everywhere(absolute, gd.ones(2))[0].tolist(), [2, 2])
        self.assertEqual(self.everywhere(absolute, -gd.ones(2))[0].tolist(), [1, 1])

    def test_only_one_branch_runs(self):
        self.assertEqual(gd.cond(gd.tensor(True), lambda: 1, lambda: 1 / 0).item(), 1)
        with self.assertRaises(ZeroDivisionError):
            gd.cond(gd.tensor(False), lambda: 1, lambda: 1 / 0)
        with self.assertRaisesRegex(TypeError, "same structure"):
            gd.jit(lambda x: gd.cond(x.sum() > 0, lambda a: [a], lambda a: (a,), x))(gd.ones(1))

    def test_while_loop(self):
        def power(x):
            return gd.while_loop(lambda s: s["i"] < 3, lambda s: {"i": s["i"] + 1, "x": s["x"] * 2}, {"i": 0, "x": x})

        i, x = self.everywhere(power, gd.ones(2))
        self.assertEqual((i.item(), x.tolist()), (3, [8, 8]))
        self.assertEqual(gd.while_loop(lambda s: s < 100, lambda s: s + 1, 0, max_steps=4).item(), 4)
        with self.assertRaisesRegex(TypeError, "structure"):
            gd.while_loop(lambda s: s < 3, lambda s: (s, s), 0)

    def test_scan_and_foldl(self):
        def sums(x, w):
            return gd.scan(lambda s, x: (s + x[0], {"before": s, "product": s * x[1]}), gd.zeros(()), (x, w))

        last, before, product = self.everywhere(sums, gd.arange(4.0), gd.ones(4) * 2)
        self.assertEqual((last.item(), before.tolist(), product.tolist()), (6, [0, 0, 1, 3], [0, 0, 2, 6]))
        self.assertEqual(gd.scan(lambda s, x: (s * 2 + x, None), 0.0, gd.arange(3.0), reverse=True)[0].item(), 10)
        self.assertEqual(gd.foldl(lambda s, x: s * x, 1.0, gd.tensor([2.0, 3.0])).item(), 6)
        for body, text in ((lambda s, x: s, "must return .state, y."), (lambda s, x: ([s], x), "structure")):
            with self.assertRaisesRegex(TypeError, text):
                gd.scan(body, 0.0, gd.arange(3.0))

    def test_gradients_flow_through_all_of_them(self):
        def f(x):
            y = gd.cond(x.sum() > 0, lambda a: a * 3, lambda a: a, x)
            y = gd.while_loop(lambda s: s[1] < 2, lambda s: (s[0] * 2, s[1] + 1), (y, 0))[0]
            return gd.scan(lambda s, t: (s + t * t, None), 0.0, y)[0]

        expected = [2 * 12 * 12 * v for v in (1.0, 2.0)]
        for g in (f, gd.jit(f)):
            x = gd.tensor([1.0, 2.0], requires_grad=True)
            g(x).backward()
            self.same(x.grad, expected)

    def test_an_exception_in_a_body_arrives(self):
        for f in (lambda x: gd.scan(lambda s, t: 1 / 0, 0.0, x), lambda x: gd.while_loop(lambda s: 1 / 0, None, x)):
            for g in (f, gd.jit(f)):
                with self.assertRaises(ZeroDivisionError):
                    g(gd.ones(2))


class Ops(Clean):
    record = """sigmoid_of(x) -> y  elementwise float
        The sigmoid of beta x.
          beta float = 1
          y = 1 / (1 + exp(-beta*x))
    """

    def test_an_op_of_ones_own(self):
        op = gd.define_op(self.record)
        self.assertIs(op, gd.define_op(self.record))  # a notebook runs a cell again
        self.assertEqual((op.__name__, op.__doc__.split("\n")[0]), ("sigmoid_of", "sigmoid_of(x, beta=1)"))
        x = gd.tensor([0.5, -1.0], requires_grad=True)
        s = [1 / (1 + math.exp(-2 * v)) for v in (0.5, -1.0)]
        for call in (lambda: op(x, beta=2), lambda: op(x, 2.0), lambda: op(x=x, beta=2), lambda: gd.jit(op)(x, beta=2),
                     lambda: gd.call_op("sigmoid_of", x, beta=2)):
            x.grad = None
            y = call()
            self.same(y.detach(), s)
            y.sum().backward()
            self.same(x.grad, [2 * v * (1 - v) for v in s])
        self.assertIn("sigmoid_of", gd.jit(lambda x: op(x), level=0).plan(x.detach()))

    def test_ops_by_name(self):
        x = gd.ones(1, 1, 3, 4)
        y = gd.call_op("conv2d", x, gd.ones(1, 1, 2, 2), None, stride=(1, 2), pad_mode="valid")
        self.assertEqual(y.shape, (1, 1, 2, 2))
        self.assertEqual(gd.call_op("sum", x, axis=[2, 3], keepdim=True, dtype=gd.float64).dtype, gd.float64)
        self.assertEqual(gd.call_op("cat", x, x, axis=3).shape, (1, 1, 3, 8))
        values, indices = gd.call_op("topk", gd.arange(4.0), k=2)
        self.assertEqual((values.tolist(), indices.tolist()), ([3, 2], [3, 2]))

    def test_mistakes(self):
        op = gd.define_op(self.record)
        for call, kind, text in (
                (lambda: op(gd.ones(1), alpha=2), ValueError, "no option 'alpha'; it has beta"),
                (lambda: op(gd.ones(1), 1, beta=2), TypeError, "'beta' twice"),
                (lambda: op(gd.ones(1), 1, 2), TypeError, "at most 2 arguments, not 3"),
                (lambda: op(beta=2), TypeError, "needs the argument 'x'"),
                (lambda: gd.define_op("sigmoid_of(x) -> y  elementwise float\n  y = x"), ValueError, "sigmoid_of"),
                (lambda: gd.define_op("broken(x) -> y  elementwise float\n  y = x +"), ValueError, "line"),
                (lambda: gd.call_op("nothing", gd.ones(1)), ValueError, "no op 'nothing'")):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                call()


if __name__ == "__main__":
    unittest.main()
