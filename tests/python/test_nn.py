"""gradus.nn: modules as PyTorch's users use them, layers with PyTorch's arguments, initial values."""

import array
import copy
import gc
import pathlib
import pickle
import tempfile
import threading
import traceback
import unittest
import weakref
from collections import OrderedDict, namedtuple

import gradus as gd
from gradus import _core, nn
from gradus.nn import init


def live():
    gc.collect()
    return _core._live_objects()


class Small(nn.Module):
    """Default arguments, and parts in any order."""

    def __init__(self, hidden=5, *, outputs=2):
        super().__init__()
        self.scale = nn.Parameter(gd.ones(1))
        self.fc1, self.fc2 = nn.Linear(3, hidden), nn.Linear(hidden, outputs)
        self.register_buffer("count", gd.zeros(1))
        self.name = "small"

    def forward(self, x):
        return self.fc2(gd.relu(self.fc1(x))) * self.scale


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2, 2)

    def forward(self, x, *, factor=1.0, extra=None):
        y = self.lin(x["a"][0]) * factor
        return {"y": y, "more": [y + 1, (extra, "text", None, 3)]}


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), Small()
        self.blocks = [self.a, self.b.fc1]
        self.table = {"w": self.a.weight}
        self.outside = [nn.Linear(1, 1)]
        self.__dict__["me"] = self


Point = namedtuple("Point", "x y")


class Parts(unittest.TestCase):
    def test_containers_with_parameters_of_their_own(self):
        class Scaled(nn.Sequential):
            def __init__(self):
                super().__init__(nn.Linear(2, 2))
                self.scale = nn.Parameter(gd.ones(1))
                self.append(nn.ReLU())

        net = Scaled()
        self.assertEqual([name for name, _ in net.named_children()], ["0", "1"])
        self.assertEqual((len(net), net(gd.ones(1, 2)).shape), (2, (1, 2)))
        self.assertIsInstance(net[-1], nn.ReLU)
        del net[0]
        self.assertEqual(([name for name, _ in net.named_parameters()], len(net)), (["scale"], 1))

    def test_containers_of_many_modules_are_built_without_reading_them_again(self):
        read, real = [], _core._module_parts
        _core._module_parts = lambda m: read.append(1) or real(m)
        try:
            layers = nn.ModuleList([nn.ReLU() for _ in range(500)])
            chain = nn.Sequential(*(nn.Linear(1, 1) for _ in range(500)))
            values = nn.ParameterList([gd.ones(1) for _ in range(500)])
        finally:
            _core._module_parts = real
        self.assertLess(len(read), 10)
        self.assertEqual((len(layers), len(chain), len(values)), (500, 500, 500))
        self.assertIs(layers[499], list(layers)[-1])
        self.assertEqual(len(list(chain.parameters())), 1000)

    def test_order_of_attributes_is_the_order_of_parts(self):
        net = Small()
        self.assertEqual([n for n, _ in net.named_parameters()],
                         ["scale", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"])
        self.assertEqual(list(net.state_dict()),
                         ["scale", "count", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"])
        self.assertEqual([n for n, _ in net.named_children()], ["fc1", "fc2"])
        self.assertEqual([n for n, _ in net.named_modules()], ["", "fc1", "fc2"])
        self.assertEqual([n for n, _ in net.named_buffers()], ["count"])

    def test_parts_are_always_the_same_objects(self):
        net = Small()
        self.assertIs(net.fc1.weight, list(net.parameters())[1])
        self.assertIs(net.fc1, dict(net.named_modules())["fc1"])
        self.assertIs(net.get_parameter("fc2.bias"), net.fc2.bias)
        self.assertIs(net.get_submodule("fc2"), net.fc2)
        self.assertIs(net.get_buffer("count"), net.count)
        self.assertIsInstance(net.fc1.weight, nn.Parameter)
        with self.assertRaisesRegex(AttributeError, "has no child 'fc3'"):
            net.get_submodule("fc3")

    def test_shared_modules_and_parameters_count_once(self):
        net = nn.Module()
        net.a = net.b = nn.Linear(2, 2)
        net.c = nn.Linear(2, 2)
        net.c.weight = net.a.weight
        self.assertEqual([n for n, _ in net.named_parameters()], ["a.weight", "a.bias", "c.bias"])
        self.assertEqual(len(list(net.named_parameters(remove_duplicate=False))), 6)
        self.assertEqual(list(net.state_dict()), ["a.weight", "a.bias", "b.weight", "b.bias", "c.weight", "c.bias"])
        self.assertEqual(len(list(net.modules())), 3)
        self.assertIs(net.c.weight, net.a.weight)

    def test_replace_and_delete(self):
        net = Small()
        old = net.fc2
        net.fc2 = nn.Linear(5, 7)
        self.assertEqual(net(gd.ones(1, 3)).shape, (1, 7))
        self.assertEqual([n for n, _ in net.named_children()], ["fc1", "fc2"])
        self.assertEqual(old(gd.ones(1, 5)).shape, (1, 2))
        net.fc1.weight = nn.Parameter(gd.zeros(5, 3))
        self.assertEqual(float(gd.sum(net.fc1.weight)), 0)
        del net.fc2
        self.assertFalse(hasattr(net, "fc2"))
        self.assertNotIn("fc2.weight", net.state_dict())
        net.fc1.bias = None
        self.assertEqual([n for n, _ in net.fc1.named_parameters()], ["weight"])
        self.assertEqual(net.fc1(gd.ones(1, 3)).tolist(), [[0.0] * 5])
        net.fc1 = None
        self.assertIsNone(net.fc1)
        self.assertEqual([n for n, _ in net.named_parameters()], ["scale"])

    def test_updates_in_place_keep_the_objects(self):
        layer = nn.Linear(2, 2)
        weight = layer.weight
        with gd.no_grad():
            layer.weight += 1
            layer.weight *= 0
            layer.weight[0] = 5
        layer.bias.data = gd.zeros(2)
        self.assertIs(layer.weight, weight)
        self.assertEqual(layer(gd.ones(1, 2)).tolist(), [[10, 0]])

    def test_parts_that_are_none(self):
        class Maybe(nn.Module):
            def __init__(self):
                super().__init__()
                super().__init__()
                self.norm = None
                self.norm = nn.ReLU()
                self.register_parameter("bias", None)
                self.add_module("tail", None)

            def forward(self, x):
                return self.norm(x) if self.bias is None and self.tail is None else x

        net = Maybe()
        self.assertEqual((net(gd.ones(1)).tolist(), list(net.state_dict())), ([1], []))
        net.bias = nn.Parameter(gd.ones(1))
        self.assertEqual(list(net.state_dict()), ["bias"])

    def test_wrong_assignments(self):
        net = Small()
        with self.assertRaisesRegex(TypeError, "assign a gd.nn.Parameter"):
            net.scale = gd.ones(1)
        with self.assertRaisesRegex(TypeError, "must be a Tensor or None"):
            net.register_buffer("x", 3)
        with self.assertRaisesRegex(TypeError, "must be a Module"):
            net.add_module("x", 3)
        with self.assertRaisesRegex(AttributeError, "Small.* has no attribute 'fc7'"):
            net.fc7
        self.assertEqual(net.name, "small")
        net.count = gd.ones(1)
        self.assertEqual(dict(net.named_buffers())["count"].tolist(), [1])

    def test_names_with_dots_and_odd_names(self):
        net = nn.Module()
        with self.assertRaises(ValueError):
            net.add_module("a.b", nn.ReLU())
        with self.assertRaises(ValueError):
            net.add_module("", nn.ReLU())

    def test_super_init_is_missing(self):
        class Forgot(nn.Module):
            def __init__(self):
                self.fc = nn.Linear(2, 2)

        class Plain(nn.Module):
            def __init__(self):
                self.x = 3

            def forward(self, x):
                return x

        with self.assertRaisesRegex(RuntimeError, r"Forgot.*super\(\).__init__\(\)"):
            Forgot()
        with self.assertRaisesRegex(RuntimeError, r"Plain.*super\(\).__init__\(\)"):
            Plain()(gd.ones(1))
        with self.assertRaisesRegex(AttributeError, r"super\(\).__init__\(\)"):
            Plain().fc
        with self.assertRaisesRegex(NotImplementedError, "no function forward"):
            nn.Module()(gd.ones(1))

    def test_buffers_that_are_not_saved(self):
        net = nn.Module()
        net.register_buffer("kept", gd.zeros(2))
        net.register_buffer("cache", gd.zeros(2), persistent=False)
        self.assertEqual(list(net.state_dict()), ["kept"])
        self.assertEqual([n for n, _ in net.named_buffers()], ["kept", "cache"])
        net.double()
        self.assertEqual(net.cache.dtype, gd.float64)
        self.assertEqual(list(copy.deepcopy(net).state_dict()), ["kept"])
        net.load_state_dict({"kept": gd.ones(2)})
        self.assertEqual(net.kept.tolist(), [1, 1])

    def test_containers(self):
        net = nn.Sequential(OrderedDict(conv=nn.Linear(2, 3), act=nn.ReLU()))
        self.assertEqual([n for n, _ in net.named_children()], ["conv", "act"])
        self.assertIs(net[0], net.conv)
        net.append(nn.Linear(3, 4))
        self.assertEqual(net(gd.ones(1, 2)).shape, (1, 4))
        self.assertEqual(len(net[:2]), 2)
        blocks = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
        blocks.insert(1, nn.ReLU())
        self.assertEqual([type(b).__name__ for b in blocks], ["Linear", "ReLU", "Linear", "Linear"])
        del blocks[-1]
        self.assertEqual(len(blocks), 3)
        with self.assertRaises(IndexError):
            blocks[3]
        table = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Linear(2, 2)})
        self.assertIn("a", table)
        self.assertEqual(list(table.keys()), ["a", "b"])
        table.pop("a")
        self.assertEqual(len(table), 1)
        weights = nn.ParameterList([gd.ones(2), gd.zeros(3)])
        weights.append(gd.ones(1))
        self.assertEqual([tuple(p.shape) for p in weights], [(2,), (3,), (1,)])
        named = nn.ParameterDict({"x": gd.ones(2)})
        self.assertIsInstance(named["x"], nn.Parameter)
        self.assertIsNone(named.get("y"))
        self.assertIs(named.setdefault("y", gd.ones(1)), named["y"])
        self.assertEqual((named.popitem()[0], list(named.keys())), ("y", ["x"]))
        for container in (blocks, table):
            with self.assertRaisesRegex(NotImplementedError, "is not called; call its modules"):
                container(gd.ones(1))

    def test_children_may_be_replaced_while_they_are_listed(self):
        net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), Small(2, outputs=2))
        seen = []
        for name, child in net.named_children():
            seen.append(name)
            if isinstance(child, nn.ReLU):
                setattr(net, name, nn.Tanh())
        for module in net.modules():
            for name, child in module.named_children():
                if isinstance(child, nn.Linear):
                    setattr(module, name, nn.Identity())
        self.assertEqual((seen, [type(m).__name__ for m in net]), (["0", "1", "2"], ["Identity", "Tanh", "Small"]))
        self.assertEqual([n for n, _ in net.named_parameters()], ["2.scale"])

    def test_set_submodule_and_reset_parameters(self):
        net = nn.Sequential(Small(), nn.Linear(2, 2))
        net.set_submodule("0.fc1", nn.Linear(3, 5, bias=False))
        self.assertIsNone(net[0].fc1.bias)
        weight = net[1].weight
        init.zeros_(weight)
        for module in net.modules():
            module.reset_parameters()
        self.assertIs(net[1].weight, weight)
        self.assertNotEqual(float(weight.abs().sum()), 0)
        norm = nn.BatchNorm1d(2)
        norm(gd.rand(4, 2))
        norm.reset_parameters()
        self.assertEqual((norm.running_mean.tolist(), int(norm.num_batches_tracked)), ([0, 0], 0))

    def test_containers_with_a_forward(self):
        class Residual(nn.Sequential):
            def forward(self, x):
                return x + super().forward(x)

        class Branches(nn.ModuleList):
            def forward(self, x):
                return sum(branch(x) for branch in self)

        class Heads(nn.ModuleDict):
            def forward(self, x):
                return {name: head(x) for name, head in self.items()}

        x = gd.ones(1, 2)
        net = Residual(nn.Linear(2, 2), nn.ReLU())
        for outer in (net, nn.Sequential(net)):
            self.assertEqual(outer(x).tolist(), (x + net[1](net[0](x))).tolist())
        branches = Branches([net, nn.Identity()]).append(nn.Identity())
        self.assertEqual(nn.Sequential(branches)(x).tolist(), (net(x) + 2 * x).tolist())
        self.assertEqual(list(branches.state_dict()), ["0.0.weight", "0.0.bias"])
        heads = Heads({"a": nn.Identity(), "b": net})
        self.assertEqual(heads(x)["b"].tolist(), net(x).tolist())
        self.assertEqual(copy.deepcopy(branches)(x).tolist(), branches(x).tolist())
        self.assertEqual(pickle.loads(pickle.dumps(nn.Sequential(nn.Identity(), nn.Identity())))(x).tolist(), x.tolist())


class Calls(unittest.TestCase):
    def test_nested_arguments_and_results(self):
        net = Pair()
        x = gd.ones(1, 2)
        out = net({"a": [x, Point(1, x)]}, factor=2.0, extra=Point(x, 5))
        self.assertEqual(set(out), {"y", "more"})
        self.assertIs(type(out["more"][1][0]), Point)
        self.assertIs(out["more"][1][0].x, x)
        self.assertEqual(out["more"][1][1:], ("text", None, 3))
        self.assertEqual((out["more"][0] - out["y"]).tolist(), [[1, 1]])

    def test_recursion_and_no_tensors(self):
        class Deep(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(1, 1, bias=False)

            def forward(self, x, depth):
                return x if depth == 0 else self(self.lin(x), depth - 1)

        class Nothing(nn.Module):
            def forward(self, n=2):
                return n + 1

        net = Deep()
        w = float(net.lin.weight)
        self.assertAlmostEqual(float(net(gd.ones(1, 1), 3)), w**3, places=5)
        self.assertEqual(Nothing()(), 3)
        self.assertEqual(Nothing()(n=5), 6)

    def test_gradients_and_freeze(self):
        net = Small()
        net(gd.ones(2, 3)).sum().backward()
        self.assertEqual(net.fc1.weight.grad.shape, (5, 3))
        net.zero_grad()
        self.assertIsNone(net.fc1.weight.grad)
        net.fc1.requires_grad_(False)
        net(gd.ones(2, 3)).sum().backward()
        self.assertIsNone(net.fc1.weight.grad)
        self.assertIsNotNone(net.fc2.weight.grad)
        self.assertFalse(net.fc1.weight.requires_grad)
        net.unfreeze()
        self.assertTrue(all(p.requires_grad for p in net.parameters()))
        for p in net.parameters():
            p.requires_grad = False
        self.assertFalse(net(gd.ones(2, 3)).requires_grad)

    def test_modes(self):
        net = nn.Sequential(nn.Dropout(0.5), Small())
        self.assertTrue(net.training and net[1].fc1.training)
        self.assertIs(net.eval(), net)
        self.assertFalse(net.training or net[1].fc1.training or net[0].training)
        x = gd.ones(4, 3)
        self.assertEqual(net[0](x).tolist(), x.tolist())
        net.train()
        net[1].training = False
        self.assertTrue(net.training and net[1].fc1.training and not net[1].training)

    def test_dtypes(self):
        net = Small()
        p = net.fc1.weight
        self.assertIs(net.to(gd.float64), net)
        self.assertIs(net.fc1.weight, p)
        self.assertEqual({t.dtype for t in net.state_dict().values()}, {gd.float64})
        self.assertEqual(net(gd.ones(1, 3, dtype=gd.float64)).dtype, gd.float64)
        net.to("cpu", gd.float32).to(device="cpu")
        self.assertEqual(net.float().fc1.weight.dtype, gd.float32)
        self.assertEqual(net.to(gd.ones(1, dtype=gd.float16)).count.dtype, gd.float16)

    def test_apply(self):
        def zero(m):
            if isinstance(m, nn.Linear):
                init.zeros_(m.weight)
                m.bias.data.fill_(0.5)

        net = nn.Sequential(nn.Linear(2, 3), Small(3))
        self.assertIs(net.apply(zero), net)
        self.assertEqual(float(net[1].fc2.weight.abs().sum()), 0)
        self.assertEqual(net[0].bias.tolist(), [0.5] * 3)

    def test_threads(self):
        net, x = Small(), gd.rand(8, 3)
        want, wrong = net(x).tolist(), []

        def work():
            for _ in range(100):
                if net(x).tolist() != want:
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_exceptions_end_in_the_line_of_the_program(self):
        class Broken(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 4)

            def forward(self, x):
                return self.fc(x) if x.ndim < 9 else x

        class Own(nn.Module):
            def forward(self, x):
                raise KeyError("mine")

        net = nn.Sequential(OrderedDict(body=nn.Sequential(Broken())))
        try:
            net(gd.ones(2, 5))
        except gd.ShapeError as error:
            self.assertIn("body.0.fc (linear)", str(error))
            frames = traceback.extract_tb(error.__traceback__)
        self.assertEqual(frames[-1].name, "forward")
        self.assertIn("self.fc(x)", frames[-1].line)
        places = []
        for net in (Own(), nn.Sequential(Own()), nn.Sequential(nn.Sequential(Own()))):
            try:
                net(gd.ones(1))
            except KeyError as error:
                self.assertEqual(error.args, ("mine",))
                places.append(error.__notes__)
                frames = traceback.extract_tb(error.__traceback__)
            self.assertEqual((frames[-1].name, frames[-1].line), ("forward", 'raise KeyError("mine")'))
        self.assertEqual(places, [["in Own"], ["in 0 (Own)"], ["in 0.0 (Own)"]])
        self.assertEqual(Small()(gd.ones(1, 3)).shape, (1, 2))

    def test_results_that_do_not_fit_a_tree(self):
        class Text(nn.Module):
            def forward(self, x):
                return "text"

        self.assertEqual(Text()(gd.ones(1)), "text")
        with self.assertRaisesRegex(TypeError, "forward must return a tensor"):
            nn.Sequential(Text())(gd.ones(1))


class Hooks(unittest.TestCase):
    def test_hooks_see_and_replace(self):
        net, seen = Small(), []
        handle = net.fc1.register_forward_hook(lambda m, i, o: seen.append((m, i[0].shape, o.shape)))
        net(gd.ones(2, 3))
        self.assertEqual(len(seen), 1)
        self.assertIs(seen[0][0], net.fc1)
        self.assertEqual(seen[0][1:], ((2, 3), (2, 5)))
        handle.remove()
        net(gd.ones(2, 3))
        self.assertEqual(len(seen), 1)
        with net.register_forward_hook(lambda m, i, o: o * 0 + 7):
            self.assertEqual(net(gd.ones(1, 3)).tolist(), [[7, 7]])
        with net.register_forward_pre_hook(lambda m, i: (i[0] * 0,)):
            zero = net(gd.ones(1, 3)).tolist()
        self.assertEqual(zero, net(gd.zeros(1, 3)).tolist())

    def test_exception_in_a_hook(self):
        net = Small()

        def broken(module, inputs, output):
            raise LookupError("hook")

        with net.fc2.register_forward_hook(broken), self.assertRaisesRegex(LookupError, "hook"):
            net(gd.ones(1, 3))
        self.assertEqual(net(gd.ones(1, 3)).shape, (1, 2))

    def test_hooks_of_a_nested_result(self):
        net, seen = nn.LSTM(2, 3), []
        net.register_forward_hook(lambda m, i, o: seen.append(len(o)))
        y, (h, c) = net(gd.ones(4, 1, 2))
        self.assertEqual((y.shape, h.shape, len(seen)), ((4, 1, 3), (1, 1, 3), 1))


class States(unittest.TestCase):
    def test_round_trip(self):
        a, b = Small(), Small()
        result = b.load_state_dict(a.state_dict())
        self.assertEqual((result.missing_keys, result.unexpected_keys), ([], []))
        self.assertEqual(a(gd.ones(1, 3)).tolist(), b(gd.ones(1, 3)).tolist())
        self.assertEqual(a.state_dict()["fc1.weight"].data_ptr(), a.fc1.weight.data_ptr())
        self.assertFalse(a.state_dict()["fc1.weight"].requires_grad)
        self.assertIs(a.state_dict(keep_vars=True)["fc1.weight"], a.fc1.weight)
        self.assertEqual(list(a.state_dict(prefix="net."))[0], "net.scale")

    def test_values_of_other_libraries(self):
        net = nn.Linear(2, 1)
        p = net.weight
        net.load_state_dict(OrderedDict(weight=memoryview(array.array("f", [1, 2])).cast("B").cast("f", [1, 2]), bias=[3.0]))
        self.assertEqual((net.weight.tolist(), net.bias.tolist()), ([[1, 2]], [3]))
        self.assertIs(net.weight, p)
        self.assertTrue(p.requires_grad)

    def test_mistakes_change_nothing(self):
        net = Small()
        before = net.fc1.weight.tolist()
        state = {k: v + 1 for k, v in net.state_dict().items()}
        state["fc2.bias"] = gd.ones(3)
        with self.assertRaisesRegex(ValueError, r"Small.*fc2.bias is \(3,\).*\(2,\)"):
            net.load_state_dict(state)
        del state["fc2.bias"]
        state["other"] = gd.ones(1)
        with self.assertRaisesRegex(ValueError, "missing: fc2.bias.*not in the module: other"):
            net.load_state_dict(state)
        self.assertEqual(net.fc1.weight.tolist(), before)
        result = net.load_state_dict(state, strict=False)
        self.assertEqual((result.missing_keys, result.unexpected_keys), (["fc2.bias"], ["other"]))
        self.assertNotEqual(net.fc1.weight.tolist(), before)

    def test_deepcopy(self):
        net = Small()
        net.fc1.freeze()
        net.memo = {"list": [1, 2]}
        other = copy.deepcopy(net)
        self.assertIsInstance(other, Small)
        self.assertEqual(other.name, "small")
        self.assertIsNot(other.memo["list"], net.memo["list"])
        self.assertIsNot(other.fc1, net.fc1)
        self.assertFalse(other.fc1.weight.requires_grad)
        self.assertIsInstance(other.fc1.weight, nn.Parameter)
        init.zeros_(other.fc2.weight)
        self.assertNotEqual(float(net.fc2.weight.abs().sum()), 0)
        x = gd.ones(1, 3)
        del net
        gc.collect()
        self.assertEqual(other(x).shape, (1, 2))

    def test_copies_of_attributes_that_refer_to_the_tree(self):
        net = Named()
        for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            self.assertIs(other.blocks[0], other.a)
            self.assertIs(other.blocks[1], other.b.fc1)
            self.assertIs(other.table["w"], other.a.weight)
            self.assertIs(other.me, other)
            self.assertIsNot(other.a, net.a)
            self.assertIsNot(other.outside[0], net.outside[0])
        both = copy.deepcopy([net, net.a.weight])
        self.assertIs(both[0].a.weight, both[1])
        shallow = copy.copy(net)
        self.assertIs(shallow.a, net.a)
        self.assertEqual(list(shallow.state_dict()), list(net.state_dict()))

    def test_pickle(self):
        net = nn.Sequential(Small(), nn.BatchNorm1d(2, momentum=None), nn.LSTM(2, 3, batch_first=True))
        net[0].tied = net[0].fc1
        net[0].double().float()
        net.eval()
        net[0].fc2.freeze()
        other = pickle.loads(pickle.dumps(net))
        self.assertIs(other[0].tied, other[0].fc1)
        self.assertFalse(other.training or other[1].training or other[0].fc2.weight.requires_grad)
        self.assertEqual([repr(m) for m in other], [repr(m) for m in net])
        x = gd.ones(4, 3)
        self.assertEqual(other[1](other[0](x)).tolist(), net[1](net[0](x)).tolist())
        y = gd.ones(1, 4, 2)
        self.assertEqual(other[2](y)[0].tolist(), net[2](y)[0].tolist())
        wide = pickle.loads(pickle.dumps(nn.Linear(2, 2).double()))
        self.assertEqual(wide.weight.dtype, gd.float64)
        self.assertEqual(len(list(pickle.loads(pickle.dumps(nn.CrossEntropyLoss(weight=gd.ones(3)))).buffers())), 1)
        with self.assertRaisesRegex(TypeError, "cannot be pickled; save its state_dict"):
            pickle.dumps(gd.zoo.resnet18().layer1[0])
        small = gd.zoo.lenet(channels=1)
        x = gd.rand(1, 1, 28, 28)
        self.assertEqual(pickle.loads(pickle.dumps(small))(x).tolist(), small(x).tolist())


class Trees(unittest.TestCase):
    def test_python_block_in_the_library_s_tree(self):
        class Double(nn.Module):
            def forward(self, x):
                return x * 2

        net = gd.zoo.lenet()
        net.fc3 = nn.Sequential(Double(), nn.Linear(net.fc3.in_features, 4), Double())
        x = gd.rand(2, 1, 28, 28)
        self.assertEqual(net(x).shape, (2, 4))
        self.assertIn("fc3.1.weight", net.state_dict())
        self.assertIn("Double", net.summary(x))
        net(x).sum().backward()
        self.assertIsNotNone(net.conv1.weight.grad)
        other = copy.deepcopy(net)
        self.assertEqual(other(x).tolist(), net(x).tolist())

    def test_a_picture(self):
        net = nn.Sequential(OrderedDict(conv=nn.Conv2d(1, 4, 3), act=nn.ReLU(), flat=nn.Flatten(), fc=nn.Linear(144, 2)))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "net.svg"
            net.draw(path, (1, 1, 8, 8), title="drawn")
            text = path.read_text()
            for word in (">conv<", ">drawn<", "out_channels=4", ">[1,2]<"):
                self.assertIn(word, text)
            net.draw(str(path), gd.zeros(5, 1, 8, 8), left_to_right=True)
            self.assertIn(">[5,2]<", path.read_text())
            with self.assertRaisesRegex(ValueError, r"\.svg or \.dot"):
                net.draw(path.with_suffix(".png"), (1, 1, 8, 8))

    def test_the_library_s_net_with_a_python_head(self):
        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = gd.zoo.mlp(outputs=6, hidden=(8,))
                self.fc = nn.Linear(6, 2)

            def forward(self, x):
                return self.fc(self.body(x))

        net = Head()
        self.assertEqual(net(gd.ones(3, 4)).shape, (3, 2))
        self.assertIn("fc", net.summary(gd.ones(3, 4)))
        self.assertEqual(len(list(net.parameters())), 6)

    def test_a_forward_of_a_subclass_works_everywhere(self):
        class Shifted(nn.Linear):
            def forward(self, x):
                return super().forward(x) + 100

        class Own(nn.LSTM):
            def forward(self, x, hx=None):
                y, (h, c) = super().forward(x, hx)
                return y + 100, (h, c)

        layer = Shifted(2, 2)
        x = gd.ones(1, 2)
        for net in (layer, nn.Sequential(layer), nn.Sequential(nn.Sequential(layer))):
            self.assertGreater(float(net(x).min()), 90)
        y, (h, c) = Own(2, 3)(gd.ones(4, 1, 2))
        self.assertGreater(float(y.min()), 90)
        inside = nn.Sequential(Own(2, 3))(gd.ones(4, 1, 2))
        self.assertGreater(float(inside[0].min()), 90)
        self.assertIn("Shifted", nn.Sequential(layer).summary(x))

    def test_a_forward_of_one_object(self):
        layer, x = nn.Linear(2, 2), gd.ones(1, 2)
        forward = layer.forward
        layer.forward = lambda x: forward(x) + 100
        for net in (layer, nn.Sequential(layer)):
            self.assertGreater(float(net(x).min()), 90)
        small = Small()
        small.forward = lambda x: x * 7
        self.assertEqual(small(x).tolist(), [[7, 7]])

    def test_more_parts_of_a_layer(self):
        class Wide(nn.Linear):
            def __init__(self):
                super().__init__(2, 2)
                self.a, self.b = nn.Parameter(gd.zeros(2, 2)), nn.Linear(2, 2)

            def forward(self, x):
                return super().forward(x) + x @ self.a + self.b(x)

        layer = Wide()
        layer(gd.ones(1, 2)).sum().backward()
        self.assertEqual(layer.a.grad.shape, (2, 2))
        self.assertEqual(list(layer.state_dict()), ["weight", "bias", "a", "b.weight", "b.bias"])
        plain = nn.Linear(2, 2)
        plain.extra = nn.Parameter(gd.ones(1))
        del plain.extra
        with self.assertRaisesRegex(AttributeError, "weight belongs to the layer Linear"):
            del plain.weight
        self.assertEqual(plain(gd.ones(1, 2)).shape, (1, 2))

    def test_adapters_in_the_library_s_containers(self):
        x = gd.rand(4, 2, 3)
        net = nn.Sequential(nn.LSTM(3, 5))
        self.assertEqual(net(x)[0].tolist(), net[0](x)[0].tolist())
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
        net = nn.Sequential(layer, layer)
        y = gd.rand(3, 2, 8)
        self.assertEqual(net(y).tolist(), layer(layer(y)).tolist())
        weighted = nn.CrossEntropyLoss(weight=gd.tensor([1.0, 5.0]))
        self.assertTrue(_core._module_is_python(weighted))
        self.assertFalse(_core._module_is_python(nn.CrossEntropyLoss()))
        self.assertIsInstance(layer.self_attn, nn.MultiheadAttention)
        y, weights = layer.self_attn(y, y, y)
        self.assertEqual(weights.shape, (2, 3, 3))

    def test_freed_at_once(self):
        net = nn.Sequential(Small(), nn.Linear(2, 2))
        net(gd.ones(1, 3)).sum().backward()
        start = live()
        gc.disable()
        try:
            made = nn.Sequential(Small(), nn.Sequential(nn.LSTM(2, 2)), nn.CrossEntropyLoss(weight=gd.ones(2)))
            made[0](gd.ones(1, 3)).sum().backward()
            list(made.parameters())
            ref = weakref.ref(made[0])
            copied = copy.deepcopy(made)
            del made
            self.assertIsNone(ref())
            del copied
            self.assertEqual(_core._live_objects(), start)
        finally:
            gc.enable()

    def test_cycles_and_exceptions_leak_nothing(self):
        class Parent(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(2, 2)
                self.hooks = [self.fc.register_forward_hook(lambda m, i, o: self.note(o))]
                self.__dict__["me"] = self

            def note(self, o):
                self.last = o

            def forward(self, x, fails=False):
                y = self.fc(x)
                if fails:
                    raise ValueError("it fails")
                return y

        def work():
            net = Parent()
            net(gd.ones(1, 2)).sum().backward()
            try:
                net(gd.ones(1, 2), fails=True)
            except ValueError:
                pass
            try:
                net(gd.ones(1, 7))
            except gd.ShapeError:
                pass
            pickle.loads(pickle.dumps(Small()))
            copy.deepcopy(Small())(gd.ones(1, 3))
            net.fc = nn.Linear(2, 2)
            del net.fc
            return weakref.ref(net)

        work()
        start, objects = live(), len(gc.get_objects())
        refs = [work() for _ in range(20)]
        self.assertEqual(live(), start)
        self.assertTrue(all(r() is None for r in refs))
        del refs
        self.assertLess(len(gc.get_objects()), objects + 100)

    def test_parts_outlive_the_whole(self):
        net = Small()
        fc, weight = net.fc1, net.fc2.weight
        del net
        gc.collect()
        self.assertEqual(fc(gd.ones(1, 3)).shape, (1, 5))
        self.assertEqual(weight.shape, (2, 5))
        block = nn.Sequential(Small())[0]
        self.assertEqual(block(gd.ones(1, 3)).shape, (1, 2))


class Jits(unittest.TestCase):
    def same(self, net, *inputs):
        """One call as a plan gives what an eager call gives."""
        with gd.no_grad():
            want, jit = net(*inputs), gd.jit(lambda *x: net(*x))
            got = [jit(*inputs) for _ in range(2)]
        for y in got:
            for a, b in zip(y if isinstance(y, tuple) else [y], want if isinstance(want, tuple) else [want]):
                if isinstance(a, gd.Tensor):
                    self.assertLess(float(gd.max(gd.abs(a - b))), 1e-5, repr(net))

    def test_modules_as_plans(self):
        gd.manual_seed(1)
        x = gd.rand(4, 2, 8)
        self.same(nn.Sequential(Small(), nn.ReLU()), gd.rand(2, 3))
        self.same(nn.LSTM(8, 3), x)
        self.same(nn.LSTM(8, 3), x, (gd.zeros(1, 2, 3), gd.zeros(1, 2, 3)))
        self.same(nn.MultiheadAttention(8, 2), x, x, x)
        self.same(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), x)
        self.same(nn.CrossEntropyLoss(weight=gd.rand(3)), gd.rand(4, 3), gd.tensor([0, 1, 2, 1]))
        self.same(nn.AdaptiveAvgPool2d((None, 2)), gd.rand(1, 1, 4, 4))
        lazy = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
        self.assertEqual(gd.jit(lambda x: lazy(x))(gd.ones(2, 4)).shape, (2, 3))

    def test_a_step(self):
        gd.manual_seed(1)
        net, loss = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)), nn.CrossEntropyLoss()

        @gd.jit
        def step(x, y):
            net.zero_grad()
            value = loss(net(x), y)
            value.backward()
            with gd.no_grad():
                for p in net.parameters():
                    p -= 0.1 * p.grad
            return value

        x, y = gd.rand(16, 3), gd.tensor([0, 1] * 8)
        values = [float(step(x, y)) for _ in range(30)]
        self.assertLess(values[-1], values[0])
        self.assertEqual(int(net[1].num_batches_tracked), 30)

    def test_modes_numbers_and_parts_that_change(self):
        drop, act = nn.Dropout(0.5), nn.LeakyReLU(0.5)
        net = nn.Sequential(drop, act)
        jit = gd.jit(lambda x: net(x))
        jit(gd.ones(4))
        net.eval()
        self.assertEqual(jit(-gd.ones(2)).tolist(), [-0.5, -0.5])
        act.negative_slope = 2.0
        self.assertEqual(jit(-gd.ones(2)).tolist(), [-2, -2])
        net[1] = nn.ReLU()
        self.assertEqual(jit(-gd.ones(2)).tolist(), [0, 0])
        with net.register_forward_hook(lambda m, i, o: o + 5):
            self.assertEqual(jit(-gd.ones(2)).tolist(), [5, 5])
        self.assertEqual(jit(-gd.ones(2)).tolist(), [0, 0])

    def test_exceptions_in_a_trace(self):
        class Broken(nn.Module):
            def forward(self, x):
                raise KeyError("mine")

        net = nn.Sequential(Broken())
        with self.assertRaises(KeyError) as caught:
            gd.jit(lambda x: net(x))(gd.ones(1))
        self.assertEqual((caught.exception.args, caught.exception.__notes__), (("mine",), ["in 0 (Broken)"]))


if __name__ == "__main__":
    unittest.main()
