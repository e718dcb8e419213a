"""gradus.Function, hooks, recompute, transforms of functions, checks of gradients."""

import gc
import math
import unittest
import weakref

import gradus as gd
import gradus.torch as torch
from gradus import _core
from gradus.torch.utils.checkpoint import checkpoint, checkpoint_sequential


class Cube(gd.Function):
    """x^3 times a number; saves an input, an output, a temporary and nothing."""

    backwards = 0

    @staticmethod
    def forward(ctx, x, k=1.0, extra=None):
        ctx.k = k
        y = x ** 3 * k
        ctx.save_for_backward(x, None, y, x * 2)
        return y

    @staticmethod
    def backward(ctx, grad):
        Cube.backwards += 1
        x, none, y, double = ctx.saved_tensors
        assert none is None and ctx.needs_input_grad[1:] == (False,) * (len(ctx.needs_input_grad) - 1)
        assert double.is_symbol or abs(double - 2 * x).max().item() == 0
        return 3 * x * x * grad * ctx.k, None, None


class OfOps(Cube):
    backward_of_ops = True


class Several(gd.Function):
    """Several outputs, one of them no tensor and one without gradient."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        sign = gd.sign(a)
        ctx.mark_non_differentiable(sign)
        return a * b, a + b, a > 0, "text", sign

    @staticmethod
    def backward(ctx, product, total, positive, text, sign):
        assert text is None
        a, b = ctx.saved_tensors
        return product * b + total if ctx.needs_input_grad[0] else None, product * a + total


class Clean(unittest.TestCase):
    """Leaves no object of the library behind."""

    def run(self, result=None):
        gc.collect()
        before = _core._live_objects()
        super().run(result)
        gc.collect()
        if result is not None and not result.failures and not result.errors and not result.skipped:
            left = _core._live_objects() - before
            if left > self.allowed:
                result.addFailure(self, (AssertionError, AssertionError(f"{left} objects are left"), None))
        return result

    allowed = 0

    def same(self, a, b, places=5):
        a, b = gd.asarray(a), gd.asarray(b)
        self.assertEqual(a.shape, b.shape)
        for x, y in zip(a.reshape(-1).tolist(), b.reshape(-1).tolist()):
            self.assertAlmostEqual(x, y, places=places)


class Functions(Clean):
    def setUp(self):
        self.x = gd.tensor([1.0, -2.0, 3.0], requires_grad=True)

    def tearDown(self):
        del self.x

    def test_backward_is_called_once_with_what_forward_saved(self):
        Cube.backwards = 0
        y = Cube.apply(self.x, 2.0)
        self.same(y, [2, -16, 54])
        y.sum().backward()
        self.same(self.x.grad, [6, 24, 54])
        self.assertEqual(Cube.backwards, 1)
        with self.assertRaisesRegex(RuntimeError, "second time|twice|again"):
            y.sum().backward()

    def test_gradients_of_gradients(self):
        g, = gd.grad([Cube.apply(self.x).sum()], [self.x], create_graph=True)
        self.same(gd.grad([g.sum()], [self.x])[0], [6, -12, 18])

    def test_several_outputs_and_arguments(self):
        b = gd.tensor([2.0, 2.0, 2.0], requires_grad=True)
        product, total, positive, text, sign = Several.apply(self.x, b)
        self.assertEqual((text, positive.tolist(), sign.requires_grad, product.requires_grad),
                         ("text", [True, False, True], False, True))
        (product.sum() + 3 * total.sum()).backward()
        self.same(self.x.grad, [5, 5, 5])
        self.same(b.grad, [4, 1, 6])
        Several.apply(self.x.detach(), b)[0].sum().backward()  # the first needs none
        self.same(b.grad, [5, -1, 9])

    def test_without_a_gradient_nothing_is_kept(self):
        kept = []

        class Noting(Cube):
            @staticmethod
            def forward(ctx, x):
                kept.append(weakref.ref(ctx))
                ctx.save_for_backward(x)
                return x + 1

        Noting.apply(self.x.detach())
        with gd.no_grad():
            Noting.apply(self.x)
        y = Noting.apply(self.x)
        gc.collect()
        self.assertEqual([c() is None for c in kept], [True, True, False])
        del y
        gc.collect()
        self.assertIsNone(kept[2]())

    def test_setup_context_and_inputs_that_are_returned(self):
        class New(gd.Function):
            @staticmethod
            def forward(x, k):
                return x

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.k = inputs[1]

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.k, None

        y = New.apply(self.x, 5)
        self.assertIsNot(y, self.x)
        y.sum().backward()
        self.same(self.x.grad, [5, 5, 5])

    def test_mistakes_say_what_would_fit(self):
        class Few(Cube):
            @staticmethod
            def backward(ctx, grad):
                return grad

        class No(Cube):
            @staticmethod
            def forward(ctx, x):
                return 3

        class Raises(Cube):
            @staticmethod
            def backward(ctx, grad):
                raise KeyError("in backward")

        class Wrong(Cube):
            @staticmethod
            def backward(ctx, grad):
                return 1.5, None

        with self.assertRaisesRegex(ValueError, "Few.backward returned 1 gradients for 2 arguments"):
            Few.apply(self.x, 2.0).sum().backward()
        with self.assertRaisesRegex(TypeError, "No.forward must return a tensor"):
            No.apply(self.x)
        with self.assertRaisesRegex(KeyError, "in backward"):
            Raises.apply(self.x).sum().backward()
        with self.assertRaisesRegex(TypeError, "gradients of backward must be tensors"):
            Wrong.apply(self.x, 1.0).sum().backward()
        with self.assertRaisesRegex(NotImplementedError, "forward"):
            gd.Function.apply(self.x)

    def test_torch_has_it_too(self):
        self.assertIs(torch.autograd.Function, gd.Function)


class InPlans(Clean):
    """Recipes of functions in graphs stay as long as the process."""

    allowed = 40

    def setUp(self):
        self.x = gd.tensor([1.0, -2.0, 3.0], requires_grad=True)

    def tearDown(self):
        del self.x

    def test_in_a_jit_both_run_in_each_call(self):
        for function in (Cube, OfOps):
            with self.subTest(function=function.__name__):
                f = gd.jit(lambda x: function.apply(x * 1.0, 2.0).sum())
                for _ in range(3):
                    self.x.grad = None
                    f(self.x).backward()
                    self.same(self.x.grad, [6, 24, 54])
                    self.assertEqual(f.traces, 1)

    def test_a_backward_of_ops_is_part_of_the_plan(self):
        f = gd.jit(lambda x: OfOps.apply(x).sum())
        f(self.x).backward()
        Cube.backwards = 0
        f(self.x).backward()
        self.assertEqual(Cube.backwards, 0)
        g, = gd.grad([f(self.x)], [self.x], create_graph=True)
        self.same(gd.grad([g.sum()], [self.x])[0], [6, -12, 18])

    def test_a_training_step_with_a_function(self):
        w = gd.ones(3, requires_grad=True)

        @gd.jit
        def step(x):
            w.grad = None
            loss = Cube.apply(x * w, 1.0).sum()
            loss.backward()
            with gd.no_grad():
                w.sub_(w.grad * 0.1)
            return loss

        x = gd.ones(3)
        self.assertEqual(step(x).item(), 3)
        self.same(w.detach(), [0.7] * 3)
        self.assertAlmostEqual(step(x).item(), 3 * 0.343, places=5)

    def test_in_a_graph_with_sizes_that_are_not_known(self):
        with gd.Graph() as graph:
            x = gd.placeholder((None,), name="x")
            y = OfOps.apply(x, 2.0)
            g, = gd.gradients(y.sum(), x)
        session = gd.Session(graph)
        for n in (1, 3, 2):
            y_now, g_now = session.run((y, g), {x: gd.ones(n) * 2})
            self.assertEqual((y_now.tolist(), g_now.tolist()), ([16] * n, [24] * n))

    def test_several_outputs_in_a_jit(self):
        f = gd.jit(lambda a, b: Several.apply(a, b))
        product, total, positive, text, sign = f(self.x, gd.ones(3))
        self.assertEqual((text, positive.tolist()), ("text", [True, False, True]))
        self.same(product.detach(), self.x.detach())


class Hooks(Clean):
    def test_a_hook_changes_the_gradient_until_it_is_removed(self):
        x, seen = gd.ones(2, requires_grad=True), []
        handle = x.register_hook(lambda g: g * 10)
        x.register_hook(lambda g: seen.append(g.tolist()))
        (x * 2).sum().backward()
        self.assertEqual((x.grad.tolist(), seen), ([20, 20], [[20, 20]]))
        handle.remove()
        handle.remove()
        x.grad = None
        (x * 2).sum().backward()
        self.assertEqual((x.grad.tolist(), seen[1:]), ([2, 2], [[2, 2]]))
        with x.register_hook(lambda g: g * 0):
            pass
        x.grad = None
        x.sum().backward()
        self.assertEqual(x.grad.tolist(), [1, 1])

    def test_a_hook_may_remove_itself_and_its_function_is_freed(self):
        x = gd.ones(2, requires_grad=True)

        class Once:
            def __call__(self, g):
                self.handle.remove()
                return g * 2

        once = Once()
        once.handle = x.register_hook(once)
        gone = weakref.ref(once)
        del once
        for expected in (2, 3):
            x.sum().backward()
            self.assertEqual(x.grad.tolist(), [expected] * 2)
        gc.collect()
        self.assertIsNone(gone())

    def test_a_hook_of_a_result_that_the_program_has_dropped_is_removed_too(self):
        x = gd.ones(2, requires_grad=True)
        y = x * 2
        handle, total = y.register_hook(lambda g: g * 100), y.sum()
        del y
        handle.remove()
        total.backward()
        self.assertEqual(x.grad.tolist(), [2, 2])

    def test_hooks_of_results_and_retain_grad(self):
        x = gd.tensor([1.0, 2.0], requires_grad=True)
        y = x * 3
        y.register_hook(lambda g: -g)
        y.retain_grad()
        (y * y).sum().backward()
        self.assertEqual((y.grad.tolist(), x.grad.tolist()), ([-6, -12], [-18, -36]))

    def test_failures(self):
        x = gd.ones(2, requires_grad=True)
        x.register_hook(lambda g: 1 / 0)
        with self.assertRaises(ZeroDivisionError):
            x.sum().backward()
        with self.assertRaisesRegex(TypeError, "function"):
            x.register_hook(3)
        with self.assertRaisesRegex(ValueError, "requires grad"):
            gd.ones(2).register_hook(lambda g: g)

    def test_a_hook_in_a_jit_becomes_part_of_the_plan(self):
        w = gd.ones(2, requires_grad=True)

        @gd.jit
        def step(x):
            w.grad = None
            y = w * x
            y.register_hook(lambda g: g * 5)
            y.sum().backward()
            return w.grad

        self.assertEqual([step(gd.ones(2)).tolist() for _ in range(2)], [[5, 5]] * 2)


class Recompute(Clean):
    def test_it_calls_the_function_again_and_has_the_same_gradients(self):
        calls = []
        w = gd.tensor([2.0, 3.0], requires_grad=True)

        def part(x, k, also=None):
            calls.append(1)
            return gd.sin(x * w) * k

        x = gd.tensor([0.5, 0.7], requires_grad=True)
        gd.recompute(part, x, 2.0, also=None).sum().backward()
        self.assertEqual(len(calls), 2)
        self.same(x.grad, [2 * math.cos(1.0) * 2, 3 * math.cos(2.1) * 2])
        self.same(w.grad, [0.5 * math.cos(1.0) * 2, 0.7 * math.cos(2.1) * 2])

    def test_several_results_in_their_structure(self):
        x = gd.tensor([[1.0, 2.0]], requires_grad=True)
        r = gd.recompute(lambda x: {"a": x * 2, "b": [x.sum(), 3]}, x)
        self.assertEqual((r["a"].shape, r["b"][0].shape, r["b"][1]), ((1, 2), (), 3))
        (r["a"].sum() + r["b"][0]).backward()
        self.assertEqual(x.grad.tolist(), [[3, 3]])

    def test_random_numbers_are_the_same(self):
        gd.manual_seed(1)
        x = gd.ones(100, requires_grad=True)
        y = gd.recompute(lambda x: gd.dropout(x, 0.5, True), x)
        y.sum().backward()
        self.assertEqual(x.grad.tolist(), y.tolist())

    def test_failures_and_checkpoint_of_torch(self):
        x = gd.ones(2, requires_grad=True)
        with self.assertRaises(ZeroDivisionError):
            gd.recompute(lambda x: 1 / 0, x)
        with self.assertRaisesRegex(TypeError, "must return tensors"):
            gd.recompute(lambda x: None, x)
        checkpoint(lambda a: a * 3, x, use_reentrant=False).sum().backward()
        checkpoint_sequential([gd.sin, gd.exp, lambda v: v * 2], 2, x).sum().backward()
        expected = 3 + 2 * math.exp(math.sin(1)) * math.cos(1)
        self.same(x.grad, [expected] * 2)


class Transforms(Clean):
    def test_jvp_and_vjp(self):
        x, v = gd.tensor([1.0, 2.0]), gd.tensor([1.0, 0.5])
        y, t = gd.jvp(lambda a, b: {"p": a * b, "c": gd.ones(1)}, (x, x), (v, gd.zeros(2)))
        self.same(y["p"], [1, 4])
        self.same(t["p"], [1, 1])
        self.same(t["c"], [0])
        y, pull = gd.vjp(lambda a, b: (a * b, a.sum()), x, x + 1)
        for _ in range(2):
            ga, gb = pull((gd.ones(2), gd.tensor(10.0)))
            self.same(ga, [12, 13])
            self.same(gb, [1, 2])
        with self.assertRaisesRegex(ValueError, "shape"):
            gd.jvp(gd.sin, (x,), (gd.ones(3),))
        with self.assertRaisesRegex(ValueError, "1 tangents for 2 tensors"):
            gd.jvp(gd.add, (x, x), (v,))
        with self.assertRaisesRegex(TypeError, "int64"):
            gd.vjp(gd.sin, gd.arange(3))

    def test_jacobian_hessian_and_products(self):
        x = gd.tensor([1.0, 2.0, 3.0])
        self.same(gd.jacobian(lambda a: a[:2] * a[1:], x), [[2, 1, 0], [0, 3, 2]])
        a, b = gd.jacobian(lambda a, b: a * b.sum(), (x, x))
        self.same(a, gd.eye(3) * 6)
        self.same(b, [[1, 1, 1], [2, 2, 2], [3, 3, 3]])
        self.same(gd.hessian(lambda a: (a ** 3).sum(), x), [[6, 0, 0], [0, 12, 0], [0, 0, 18]])
        (_, h), _ = gd.hessian(lambda a, b: (a * b).sum(), (x, x))
        self.same(h, gd.eye(3))
        y, p = gd.hvp(lambda a: (a ** 3).sum(), x, gd.tensor([1.0, 0.0, 2.0]))
        self.assertEqual(y.item(), 36)
        self.same(p, [6, 0, 36])
        self.same(torch.autograd.functional.jvp(lambda a: a * a, x, gd.ones(3))[1], [2, 4, 6])
        self.same(torch.autograd.functional.vhp(lambda a: (a * a).sum(), x, gd.ones(3))[1], [2, 2, 2])

    def test_transforms_are_differentiable_and_work_in_a_jit(self):
        x = gd.tensor([1.0, 2.0], requires_grad=True)
        j = gd.jacobian(lambda a: a ** 3, x, create_graph=True)
        self.same(gd.grad([j.sum()], [x])[0], [6, 12])
        f = gd.jit(lambda x: gd.jvp(gd.sin, (x,), (gd.ones(2),))[1])
        self.same(f(x.detach()), [math.cos(1), math.cos(2)])
        f = gd.jit(lambda x: gd.vjp(gd.sin, x)[1](gd.ones(2))[0])
        self.same(f(x.detach()), [math.cos(1), math.cos(2)])

    def test_gradcheck_finds_a_wrong_gradient(self):
        class Wrong(Cube):
            @staticmethod
            def backward(ctx, grad):
                return grad

        x = gd.tensor([1.0, 2.0], dtype=gd.float64, requires_grad=True)
        self.assertTrue(gd.gradcheck(Cube.apply, x, second_order=True))
        self.assertTrue(gd.gradcheck(lambda a: (a * a, a > 0, gd.sin(a)), (x,)))
        with self.assertRaisesRegex(ValueError, "input 0 .*element 0.*finite differences"):
            gd.gradcheck(Wrong.apply, x)
        self.assertFalse(torch.autograd.gradcheck(Wrong.apply, x, raise_exception=False))
        with self.assertRaises(ZeroDivisionError):
            gd.gradcheck(lambda a: a / (0 if a.grad_fails else 1) if hasattr(a, "grad_fails") else 1 / 0, x)


if __name__ == "__main__":
    unittest.main()
