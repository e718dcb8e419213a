"""ONNX files, networks of the zoo, summaries, TensorBoard's logs and the profiler."""
import gc
import json
import os
import pickle
import tempfile
import unittest

import gradus as gd


class Net(gd.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = gd.nn.Conv2d(1, 4, 3), gd.nn.Linear(4 * 3 * 3, 10)

    def forward(self, x):
        return self.fc(gd.max_pool2d(gd.relu(self.conv(x)), 2).flatten(1))


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "net.onnx")

    def test_a_python_module_is_saved_and_loaded(self):
        net = Net()
        gd.onnx.save(net, self.path, gd.zeros(1, 1, 8, 8), metadata={"author": "me"}, input_names=["image"])
        loaded = gd.onnx.load(self.path)
        self.assertIsInstance(loaded, gd.nn.Module)
        x = gd.randn(5, 1, 8, 8)  # any batch
        self.assertLess(gd.max(gd.abs(loaded(x) - net(x))).item(), 1e-6)
        self.assertEqual(set(loaded.state_dict()), set(net.state_dict()))
        self.assertEqual((gd.onnx.metadata(self.path, "author"), gd.onnx.metadata(self.path, "year")), ("me", None))
        loaded.compile("sgd lr=0.1", "cross_entropy")
        before = loaded.state_dict()["fc.bias"].tolist()
        loaded.fit(x, gd.arange(5), verbose=0)
        self.assertNotEqual(loaded.state_dict()["fc.bias"].tolist(), before)

    @unittest.skipUnless(hasattr(gd, "Session"), "gradus.Session is not there")
    def test_a_session_is_saved_from_its_symbols(self):
        with gd.Graph() as graph:
            x = gd.placeholder((None, 3), name="x")
            y = gd.relu(x) * 2.0
        gd.onnx.save(gd.Session(graph), self.path, x, outputs=y)
        self.assertEqual(gd.onnx.load(self.path)(gd.tensor([[-1.0, 2.0, 3.0]])).tolist(), [[0, 4, 6]])
        with self.assertRaisesRegex(TypeError, "outputs"):
            gd.onnx.save(gd.Session(graph), self.path, x)

    def test_mistakes(self):
        net = Net()
        for call, kind, text in [(lambda: gd.onnx.save(net, self.path), TypeError, "inputs are needed"),
                                 (lambda: gd.onnx.save(3, self.path, 1), TypeError, "not int"),
                                 (lambda: gd.onnx.save(net, self.path, gd.zeros(1, 2, 8, 8)), ValueError, "conv"),
                                 (lambda: gd.onnx.save(net, self.path, gd.zeros(1, 1, 8, 8), input_names="x"), TypeError, "sequence"),
                                 (lambda: gd.onnx.load(self.path), OSError, "net.onnx")]:
            with self.assertRaisesRegex(kind, text):
                call()


class Zoo(unittest.TestCase):
    def test_networks_are_modules(self):
        net = gd.zoo.mlp(outputs=3, hidden=[4, 5])
        self.assertEqual(net(gd.ones(2, 7)).shape, (2, 3))
        self.assertIn("resnet18", dir(gd.zoo))
        net = gd.zoo.resnet18(classes=7)
        self.assertEqual(net(gd.zeros(2, 3, 32, 32)).shape, (2, 7))
        self.assertIn("layer1.0.conv1.weight", net.state_dict())
        self.assertEqual(net.layer1[0].conv1.weight.shape, (64, 64, 3, 3))
        other = pickle.loads(pickle.dumps(gd.zoo.mlp(outputs=3, hidden=[4])))
        self.assertIsInstance(other, gd.zoo.mlp)
        with self.assertRaisesRegex(AttributeError, "resnet1"):
            gd.zoo.resnet1
        with self.assertRaisesRegex(TypeError, "classes"):
            gd.zoo.resnet18(classs=7)

    def test_summary(self):
        net = Net()
        text = net.summary((1, 1, 8, 8))
        self.assertEqual(text, net.summary(gd.zeros(1, 1, 8, 8)))
        self.assertIn("conv2d", text)


class Records(unittest.TestCase):
    def test_tensorboard(self):
        with tempfile.TemporaryDirectory() as folder:
            with gd.tensorboard.SummaryWriter(folder) as writer:
                writer.add_scalar("loss/train", gd.tensor(0.5), 1)
                writer.add_image("image", gd.rand(3, 4, 4), 2)
                writer.add_histogram("weights", [1.0, 2.0, 3.0], 3)
                writer.add_text("notes", "**bold**", 4)
                name, = os.listdir(folder)
            with open(os.path.join(folder, name), "rb") as file:
                data = file.read()
            self.assertTrue(all(tag in data for tag in (b"loss/train", b"image", b"weights", b"**bold**")))
            with self.assertRaisesRegex(RuntimeError, "no content"):
                writer.add_scalar("x", 1.0)
            writer.close()

    def test_profiler(self):
        x = gd.randn(64, 64)
        with gd.profiler.profile() as profile:
            with gd.profiler.record("my span"):
                gd.relu(x @ x)
        ops = {row.op: row for row in profile.rows()}
        self.assertEqual(ops["matmul"].calls, 1)
        self.assertIn("matmul", profile.table())
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            profile.save(path)
            with open(path) as file:
                self.assertIn("my span", json.dumps(json.load(file)))

    def test_nothing_is_left(self):
        def work():
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "net.onnx")
                gd.onnx.save(Net(), path, gd.zeros(1, 1, 8, 8))
                gd.onnx.load(path)(gd.zeros(2, 1, 8, 8))
                gd.tensorboard.SummaryWriter(folder).add_scalar("x", 1.0)
        work()
        gc.collect()
        before = gd._core._live_objects()
        work()
        gc.collect()
        self.assertEqual(gd._core._live_objects(), before)


if __name__ == "__main__":
    unittest.main()
