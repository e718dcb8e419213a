"""gradus.optim: groups, state and schedulers in PyTorch's form. The numbers of updates are checked in C (test_optim_golden)."""
import copy
import gc
import math
import pickle
import unittest

import gradus as gd

lrs = gd.optim.lr_scheduler
CLASSES = {"SGD": {"momentum": 0.9}, "Adam": {}, "AdamW": {"betas": (0.8, 0.9)}, "RMSprop": {"centered": True}, "Adagrad": {},
           "Adadelta": {"rho": 0.8}}


def make_net():
    gd.manual_seed(3)
    return gd.nn.Linear(3, 2)


def train(net, opt, steps=3):
    for i in range(steps):
        opt.zero_grad()
        gd.sum(net(gd.full((4, 3), i + 1.0)) ** 2).backward()
        opt.step()


def values(net):
    return [p.tolist() for p in net.parameters()]


class Optimizers(unittest.TestCase):
    def test_update_is_that_of_the_formula(self):
        w = gd.tensor([1.0, -2.0], requires_grad=True)
        opt = gd.optim.SGD([w], 0.1, 0.9)
        for _ in range(2):
            opt.zero_grad()
            gd.sum(w * gd.tensor([2.0, 4.0])).backward()
            opt.step()
        self.assertAlmostEqual(w[0].item(), 1 - 0.1 * 2 - 0.1 * (0.9 * 2 + 2), 5)

    def test_takes_parameters_in_all_forms(self):
        first = None
        for form in (lambda n: n.parameters(), lambda n: list(n.parameters()), lambda n: n.named_parameters(), lambda n: n,
                     lambda n: [{"params": n.weight}, {"params": [n.bias]}], lambda n: [{"params": n.parameters()}]):
            net = make_net()
            train(net, gd.optim.Adam(form(net), lr=0.01))
            first = first or values(net)
            self.assertEqual(values(net), first)

    def test_module_gives_layers_that_are_built_later(self):
        net = gd.nn.Sequential(gd.nn.Linear(None, 4), gd.nn.Tanh(), gd.nn.Linear(None, 2))
        opt = gd.optim.SGD(net, lr=0.1)
        net(gd.ones(1, 3))
        before = values(net)
        train(net, opt, 1)
        self.assertEqual(len(opt.param_groups[0]["params"]), 4)
        self.assertNotEqual(values(net), before)

    def test_groups_have_options_of_their_own_that_can_change(self):
        net = make_net()
        opt = gd.optim.SGD([{"params": net.weight, "lr": 0.5, "name": "w"}, {"params": [net.bias], "momentum": 0.25}], lr=0.1)
        self.assertEqual([g["lr"] for g in opt.param_groups], [0.5, 0.1])
        self.assertEqual([g["momentum"] for g in opt.param_groups], [0.0, 0.25])
        self.assertIs(opt.param_groups[0]["params"][0], net.weight)
        self.assertEqual(opt.param_groups[0]["name"], "w")
        for g in opt.param_groups:
            g["lr"] = 0.0
        before = values(net)
        train(net, opt)
        self.assertEqual(values(net), before)
        opt.param_groups[1]["lr"] = gd.tensor(0.5)
        train(net, opt)
        self.assertEqual((values(net)[0], values(net)[1] != before[1]), (before[0], True))

    def test_changed_options_count_from_the_next_step(self):
        a, b = make_net(), make_net()
        one, two = gd.optim.SGD(a, lr=0.1), gd.optim.SGD(b, lr=0.1, weight_decay=0.5)
        one.param_groups[0]["weight_decay"] = 0.5
        train(a, one), train(b, two)
        self.assertEqual(values(a), values(b))
        adam = gd.optim.Adam(a)
        adam.param_groups[0]["betas"] = (0.5, 0.25)
        self.assertEqual(adam.param_groups[0]["betas"], (0.5, 0.25))
        train(a, adam)
        with self.assertRaisesRegex(gd.StateError, "first step"):
            adam.param_groups[0]["amsgrad"] = True
        with self.assertRaisesRegex(ValueError, "weight_decay"):
            adam.param_groups[0]["weight_decay"] = -1

    def test_add_param_group(self):
        net = make_net()
        opt = gd.optim.AdamW([net.weight], lr=0.5, betas=(0.5, 0.75))
        opt.add_param_group({"params": net.bias, "lr": 0.25, "tag": 7})
        self.assertEqual([(g["lr"], g["betas"]) for g in opt.param_groups], [(0.5, (0.5, 0.75)), (0.25, (0.5, 0.75))])
        self.assertEqual(opt.param_groups[1]["tag"], 7)
        with self.assertRaises(ValueError):
            opt.add_param_group({"params": net.bias})

    def test_state_continues_with_the_same_bits(self):
        for name, options in CLASSES.items():
            for whole in (False, True):
                a = make_net()
                one = getattr(gd.optim, name)(a if whole else a.parameters(), **options)
                train(a, one)
                b = make_net()
                b.load_state_dict(a.state_dict())
                two = getattr(gd.optim, name)(b if whole else b.parameters(), lr=0.5)
                two.load_state_dict(copy.deepcopy(one.state_dict()) if not whole else one.state_dict())
                self.assertEqual(two.param_groups[0]["lr"], one.param_groups[0]["lr"])
                train(a, one), train(b, two)
                self.assertEqual(values(a), values(b), name)

    def test_state_has_names(self):
        net = make_net()
        opt = gd.optim.Adam(net.parameters())
        train(net, opt)
        state = opt.state_dict()
        self.assertEqual(set(state["state"][1]), {"exp_avg", "exp_avg_sq", "step"})
        self.assertEqual(state["param_groups"][0]["params"], [0, 1])
        self.assertEqual(state["param_groups"][0]["betas"], (0.9, 0.999))
        of_net = gd.optim.Adam(net)
        train(net, of_net)
        self.assertEqual(set(of_net.state_dict()["state"]), {"weight", "bias"})
        of_net.load_state_dict(state)  # numbers stand for parameters in their order
        self.assertEqual(of_net.state_dict()["state"]["bias"]["exp_avg"].tolist(), state["state"][1]["exp_avg"].tolist())
        with self.assertRaisesRegex(ValueError, "groups of"):
            gd.optim.Adam([net.weight]).load_state_dict(state)

    def test_state_of_pytorch_may_lack_the_step(self):
        net = make_net()
        opt = gd.optim.SGD(net.parameters(), lr=0.1, momentum=0.5, dampening=0.25)
        train(net, opt)
        state = copy.deepcopy(opt.state_dict())
        for kept in state["state"].values():
            del kept["step"]
        opt.load_state_dict(state)
        self.assertEqual(opt.state_dict()["state"][0]["step"].item(), 1)

    def test_pickle_and_deepcopy(self):
        for of in (lambda n: n, lambda n: n.parameters()):
            net = make_net()
            opt = gd.optim.SGD(of(net), lr=0.25, momentum=0.5)
            train(net, opt)
            for copied in (pickle.loads(pickle.dumps(opt)), copy.deepcopy(opt)):
                self.assertEqual(copied.param_groups[0]["lr"], 0.25)
                params = copied.param_groups[0]["params"]
                self.assertEqual([p.tolist() for p in params], values(net))
                kept = list(copied.state_dict()["state"].values())
                self.assertEqual([s["momentum_buffer"].tolist() for s in kept],
                                 [s["momentum_buffer"].tolist() for s in opt.state_dict()["state"].values()])

    def test_closure_and_zero_grad(self):
        net = make_net()
        opt = gd.optim.SGD(net.parameters(), lr=0.1)

        def closure():
            opt.zero_grad(set_to_none=False)
            loss = gd.sum(net(gd.ones(1, 3)))
            loss.backward()
            return loss
        with gd.no_grad():
            loss = opt.step(closure)
        self.assertIsInstance(loss.item(), float)
        opt.zero_grad(set_to_none=False)
        self.assertEqual(net.bias.grad.tolist(), [0, 0])
        opt.zero_grad()
        self.assertIsNone(net.bias.grad)

    def test_mistakes_say_what_would_fit(self):
        net = make_net()
        for call, kind, text in [
                (lambda: gd.optim.SGD([]), ValueError, "no parameters"),
                (lambda: gd.optim.SGD(net.weight), TypeError, "not one Tensor"),
                (lambda: gd.optim.SGD(net, lr=-1), ValueError, "lr"),
                (lambda: gd.optim.SGD(net, learning_rate=1), TypeError, "momentum"),
                (lambda: gd.optim.SGD(net, nesterov=True), ValueError, "momentum"),
                (lambda: gd.optim.Adam(net, betas=0.9), ValueError, "pair"),
                (lambda: gd.optim.SGD([net.weight * 2]), RuntimeError, "result of mul"),
                (lambda: gd.optim.SGD([{"lr": 1}]), ValueError, "no parameters"),
                (lambda: gd.optim.Optimizer(), TypeError, "SGD"),
                (lambda: gd.optim.NoSuch, AttributeError, "NoSuch")]:
            with self.assertRaisesRegex(kind, text):
                call()

    def test_of_the_program(self):
        class Momentum(gd.optim.Optimizer):
            def __init__(self, params, lr=0.1, momentum=0.0):
                super().__init__(params, {"lr": lr, "momentum": momentum})

            @gd.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is not None:
                            state = self.state[p]
                            state["buffer"] = p.grad.clone() if "buffer" not in state else (
                                group["momentum"] * state["buffer"] + p.grad)
                            p -= group["lr"] * state["buffer"]
        globals()["Momentum"], Momentum.__qualname__ = Momentum, "Momentum"  # for pickle
        a, b, c = make_net(), make_net(), make_net()
        own, known = Momentum(a, lr=0.25, momentum=0.5), gd.optim.SGD(b, lr=0.25, momentum=0.5)
        decay = lrs.LambdaLR(own, lambda n: 0.5 ** n)
        train(a, own), train(b, known)
        for p, q in zip(a.parameters(), b.parameters()):
            self.assertLess(gd.max(gd.abs(p - q)).item(), 1e-5)
        other = Momentum([{"params": c.weight}, {"params": [c.bias], "lr": 1.0}])
        self.assertEqual([g["lr"] for g in other.param_groups], [0.1, 1.0])
        other = Momentum(c)
        c.load_state_dict(a.state_dict()), other.load_state_dict(own.state_dict())
        decay.step()
        self.assertEqual((own.param_groups[0]["lr"], other.param_groups[0]["lr"]), (0.125, 0.25))
        own.param_groups[0]["lr"] = 0.25
        train(a, own), train(c, other)
        self.assertEqual(values(a), values(c))
        copied = pickle.loads(pickle.dumps(own))
        self.assertEqual([s["buffer"].tolist() for s in copied.state.values()], [s["buffer"].tolist() for s in own.state.values()])
        own.zero_grad()
        self.assertIsNone(a.bias.grad)
        for call, text in [(lambda: Momentum([]), "no parameters"), (lambda: Momentum([a.bias, a.bias]), "twice"),
                           (lambda: Momentum([a.bias * 2]), "leaf"), (lambda: lrs.StepLR(own, 2), "LambdaLR"),
                           (lambda: a.compile(own), "optimizer=None"), (lambda: Momentum(a.bias), "not one Tensor")]:
            with self.assertRaisesRegex(Exception, text):
                call()

    def test_nothing_is_left(self):
        def work():
            net = make_net()
            opt = gd.optim.AdamW(net, lr=0.1)
            lrs.StepLR(opt, 2).step()
            train(net, opt)
            opt.load_state_dict(opt.state_dict())
            pickle.loads(pickle.dumps(opt))
            repr(opt)
        work()
        gc.collect()
        before = gd._core._live_objects()
        work()
        gc.collect()
        self.assertEqual(gd._core._live_objects(), before)


class Schedulers(unittest.TestCase):
    def follow(self, make, steps=6, lr=1.0):
        opt = gd.optim.SGD(make_net(), lr=lr)
        scheduler, rates = make(opt), []
        for _ in range(steps):
            rates.append(scheduler.get_last_lr()[0])
            opt.step() if False else scheduler.step()
        self.assertEqual(scheduler.last_epoch, steps)
        return rates

    def check(self, make, expected, **options):
        for got, want in zip(self.follow(make, len(expected), **options), expected):
            self.assertAlmostEqual(got, want, 9)

    def test_formulas_are_pytorchs(self):
        cos = [(1 + math.cos(math.pi * i / 4)) / 2 for i in range(5)]
        self.check(lambda o: lrs.StepLR(o, 2, gamma=0.5), [1, 1, 0.5, 0.5, 0.25])
        self.check(lambda o: lrs.MultiStepLR(o, [1, 3], 0.5), [1, 0.5, 0.5, 0.25])
        self.check(lambda o: lrs.ExponentialLR(o, 0.5), [1, 0.5, 0.25])
        self.check(lambda o: lrs.ConstantLR(o), [1 / 3] * 5 + [1, 1])
        self.check(lambda o: lrs.ConstantLR(o, 0.5, 2), [0.5, 0.5, 1])
        self.check(lambda o: lrs.LinearLR(o, start_factor=0.5, total_iters=2), [0.5, 0.75, 1, 1])
        self.check(lambda o: lrs.PolynomialLR(o, 2, 2), [1, 0.25, 0, 0])
        self.check(lambda o: lrs.InverseLR(o, 0.5, 2), [1, 1 / 2.25, 1 / 4])
        self.check(lambda o: lrs.SigmoidLR(o, -1, 1), [1 / (1 + math.exp(i - 1)) for i in range(3)])
        self.check(lambda o: lrs.CosineAnnealingLR(o, T_max=4), cos)
        self.check(lambda o: lrs.CosineAnnealingLR(o, 4, 0.5), [0.5 + c / 2 for c in cos])
        self.check(lambda o: lrs.CosineAnnealingLR(o, 4, warmup=2), [0, 0.5] + cos)
        self.check(lambda o: lrs.CosineAnnealingWarmRestarts(o, 2, 2),
                   [1, 0.5] + [(1 + math.cos(math.pi * i / 4)) / 2 for i in range(4)] + [1])
        self.check(lambda o: lrs.LambdaLR(o, lambda n: 1 / (1 + n)), [1, 1 / 2, 1 / 3, 1 / 4])
        self.check(lambda o: lrs.MultiplicativeLR(o, lambda n: 0.5), [1, 0.5, 0.25])
        self.check(lambda o: lrs.SequentialLR(o, [lrs.LinearLR(o, 0.5, total_iters=2), lrs.ExponentialLR(o, 0.5)], [3]),
                   [0.5, 0.75, 1, 1, 0.5, 0.25])
        rates = self.follow(lambda o: lrs.OneCycleLR(o, 2.0, epochs=2, steps_per_epoch=5), 10)
        self.assertAlmostEqual(rates[0], 2 / 25)
        self.assertAlmostEqual(rates[2], 2.0)
        self.assertAlmostEqual(rates[9], 2 / 25 / 1e4)

    def test_plateau(self):
        opt = gd.optim.SGD(make_net(), lr=1.0)
        plateau = lrs.ReduceLROnPlateau(opt, factor=0.5, patience=1, cooldown=1)
        rates = []
        for loss in [1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]:
            plateau.step(gd.tensor(loss))
            rates.append(opt.param_groups[0]["lr"])
        self.assertEqual(rates, [1, 1, 1, 0.5, 0.5, 0.5, 0.25])

    def test_own_scheduler_and_state(self):
        class Halved(lrs.LRScheduler):
            def get_lr(self):
                return [base * 0.5 ** self.last_epoch for base in self.base_lrs]
        for make in (Halved, lambda o: lrs.ExponentialLR(o, 0.5)):
            opt = gd.optim.SGD(make_net(), lr=1.0)
            one = make(opt)
            one.step(), one.step()
            saved = pickle.loads(pickle.dumps((opt.state_dict(), one.state_dict())))
            self.assertEqual(saved[1]["last_epoch"], 2)
            other = gd.optim.SGD(make_net(), lr=7.0)
            two = make(other)
            other.load_state_dict(saved[0]), two.load_state_dict(saved[1])
            two.step()
            self.assertEqual((two.get_last_lr(), two.base_lrs), ([0.125], [1.0]))

    def test_mistakes(self):
        opt = gd.optim.SGD(make_net(), lr=1.0)
        for call, kind, text in [(lambda: lrs.StepLR(opt), TypeError, "step_size"),
                                 (lambda: lrs.StepLR(opt, 0), ValueError, "size"),
                                 (lambda: lrs.StepLR("sgd", 1), TypeError, "Optimizer"),
                                 (lambda: lrs.LambdaLR("sgd", 1), Exception, ""),
                                 (lambda: lrs.OneCycleLR(opt, 1.0), ValueError, "total_steps"),
                                 (lambda: lrs.OneCycleLR(opt, 1.0, 10, cycle_momentum=True), NotImplementedError, "rate")]:
            with self.assertRaisesRegex(kind, text):
                call()


class TorchNames(unittest.TestCase):
    def test_programs_that_move_find_the_names(self):
        import gradus.torch as torch
        import gradus.torch.optim as optim
        from gradus.torch.optim.lr_scheduler import StepLR
        from gradus.torch.utils.tensorboard import SummaryWriter

        self.assertIs(torch.optim.AdamW, gd.optim.AdamW)
        self.assertIs(optim.SGD, gd.optim.SGD)
        self.assertIs(StepLR, lrs.StepLR)
        self.assertIs(optim.lr_scheduler.LambdaLR, lrs.LambdaLR)
        self.assertIs(SummaryWriter, gd.tensorboard.SummaryWriter)
        self.assertIs(torch.nn.utils.clip_grad_norm_, gd.nn.utils.clip_grad_norm_)
        self.assertIn("AdamW", dir(optim))
        with self.assertRaises(AttributeError):
            torch.no_such_name


@unittest.skipUnless(hasattr(gd, "jit"), "gradus.jit is not there")
class Compiled(unittest.TestCase):
    def run_steps(self, compiled, what):
        net = make_net()
        opt = gd.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        scheduler = lrs.ExponentialLR(opt, 0.5)

        def step(x, y):
            opt.zero_grad()
            loss = gd.cross_entropy(net(x), y)
            loss.backward()
            if "clip" in what:
                gd.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            opt.step()
            if "schedule" in what:
                scheduler.step()
            for g in opt.param_groups if "lr" in what else ():
                g["lr"] = g["lr"] * 0.9
            return loss
        if compiled:
            step = gd.jit(step)
        losses = [step(gd.ones(3, 3), gd.tensor([0, 1, 1])).item() for _ in range(3)]
        opt.param_groups[0]["weight_decay"] = 0.5
        losses += [step(gd.ones(3, 3), gd.tensor([0, 1, 1])).item() for _ in range(2)]
        return losses, scheduler.last_epoch, scheduler.get_last_lr(), values(net)

    def test_a_compiled_step_has_the_same_bits(self):
        for what in ("", "clip", "schedule", "lr", "clip schedule lr"):
            self.assertEqual(self.run_steps(False, what), self.run_steps(True, what), what)

    def test_schedulers_in_python_say_where_they_belong(self):
        scheduler = lrs.LambdaLR(gd.optim.SGD(make_net()), lambda n: 0.5)
        with self.assertRaisesRegex(RuntimeError, "behind the compiled function"):
            gd.jit(lambda x: (scheduler.step(), x + 1)[1])(gd.ones(2))


class Clipping(unittest.TestCase):
    def test_norm_and_value(self):
        net = make_net()
        params = list(net.parameters())
        gd.sum(net(gd.ones(2, 3)) * 10).backward()
        norm = gd.nn.utils.clip_grad_norm_(params, 1.0).item()
        self.assertAlmostEqual(norm, math.sqrt(8 * 400), 3)
        self.assertAlmostEqual(sum((p.grad ** 2).sum().item() for p in params), 1.0, 3)
        gd.nn.utils.clip_grad_value_(net.parameters(), 0.125)
        self.assertEqual(net.bias.grad.tolist(), [0.125, 0.125])
        self.assertEqual(gd.nn.utils.parameters_to_vector(params).shape, (8,))
        gd.nn.utils.vector_to_parameters(gd.arange(8.0), params)
        self.assertEqual(net.bias.tolist(), [6, 7])


if __name__ == "__main__":
    unittest.main()
