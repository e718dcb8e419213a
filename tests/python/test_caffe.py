"""gradus.caffe: nets, weights and solvers of Caffe from Python."""

import os
import tempfile
import unittest
import zipfile

import gradus as gd

NET = """name: 'small' input: 'data' input_shape { dim: 2 dim: 3 dim: 8 dim: 8 }
layer { name: 'conv/1' type: 'Convolution' bottom: 'data' top: 'conv1'
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'xavier' } } }
layer { name: 'relu' type: 'ReLU' bottom: 'conv1' top: 'conv1' }
layer { name: 'fc' type: 'InnerProduct' bottom: 'conv1' top: 'fc'
        inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } }
layer { name: 'prob' type: 'Softmax' bottom: 'fc' top: 'prob' }"""
TRAIN = """layer { name: 'data' type: 'DummyData' top: 'data' top: 'label' dummy_data_param {
          shape { dim: 8 dim: 3 } shape { dim: 8 }
          data_filler { type: 'gaussian' std: 1 } data_filler { type: 'constant' value: 1 } } }
layer { name: 'fc' type: 'InnerProduct' bottom: 'data' top: 'fc'
        inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'fc' bottom: 'label' top: 'loss' }"""
SOLVER = """net: 'train.prototxt' base_lr: 0.1 lr_policy: 'fixed' max_iter: 20 display: 10 snapshot_prefix: 'run'
random_seed: 1"""


class Caffe(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        for name, text in (("net.prototxt", NET), ("train.prototxt", TRAIN), ("solver.prototxt", SOLVER)):
            with open(name, "w") as file:
                file.write(text)

    def test_a_net_is_a_module(self):
        net = gd.caffe.net("net.prototxt")
        self.assertEqual((gd.caffe.inputs(net), gd.caffe.outputs(net)), ({"data": (2, 3, 8, 8)}, {"prob": (2, 2)}))
        self.assertEqual(net(gd.ones(5, 3, 8, 8)).shape, (5, 2))
        self.assertFalse(net.training)
        self.assertIn("conv/1.weight", dict(net.named_parameters()))
        step = gd.jit(lambda x: net(x))
        x = gd.randn(2, 3, 8, 8)
        self.assertTrue(gd.allclose(step(x), net(x)))
        self.assertEqual(gd.caffe.inputs(gd.nn.Linear(2, 3)), {})

    def test_weights_and_outputs(self):
        net, x = gd.caffe.net("net.prototxt"), gd.randn(2, 3, 8, 8)
        gd.caffe.save(net, "net.caffemodel")
        same = gd.caffe.net("net.prototxt", weights="net.caffemodel", outputs=["fc", "prob"])
        fc, prob = same(x)
        self.assertEqual(prob.tolist(), net(x).tolist())
        self.assertEqual(gd.softmax(fc, 1).tolist(), prob.tolist())
        other = gd.caffe.net("net.prototxt")
        gd.caffe.load(other, "net.caffemodel")
        self.assertEqual(other(x).tolist(), prob.tolist())

    def test_pictures_and_features(self):
        gd.caffe.draw("net.prototxt", "net.svg")
        with open("net.svg") as file:
            self.assertIn("4 outputs, kernel 3", file.read())
        gd.caffe.extract("train.prototxt", ["fc", "label"], "features.npz", iterations=3)
        with zipfile.ZipFile("features.npz") as file:
            self.assertEqual(file.namelist(), ["fc.npy", "label.npy"])
            self.assertIn(b"(24, 2)", file.read("fc.npy"))
        with self.assertRaisesRegex(ValueError, "no blob 'fc8'"):
            gd.caffe.extract("train.prototxt", "fc8", "features.npz")

    def test_blobs(self):
        gd.caffe.write_blob("mean.binaryproto", gd.arange(6.0).reshape(1, 2, 3))
        self.assertEqual(gd.caffe.read_blob("mean.binaryproto").tolist(), [[[0, 1, 2], [3, 4, 5]]])

    def test_training(self):
        lines = []
        history = gd.caffe.train("solver.prototxt", log=lines.append)
        self.assertTrue(any("Iteration 10, lr = 0.1" in line for line in lines))
        self.assertLess(history.history["loss"][-1], 0.7)
        self.assertTrue(os.path.exists("run_iter_20.caffemodel"))
        values = gd.caffe.test("train.prototxt", weights="run_iter_20.caffemodel", iterations=3)
        self.assertLess(values["loss"], 0.5)
        self.assertEqual(type(history.model).__name__, type(gd.caffe.net("net.prototxt")).__name__)

    def test_failures_are_exceptions(self):
        with self.assertRaises(OSError):
            gd.caffe.net("none.prototxt")
        with open("bad.prototxt", "w") as file:
            file.write(NET.replace("num_output: 4", "num_outputs: 4"))
        with self.assertRaises(gd.Error) as caught:
            gd.caffe.net("bad.prototxt")
        self.assertIn("did you mean num_output?", str(caught.exception))

        def fail(line):
            raise ValueError(line[:1])

        with self.assertRaises(ValueError):
            gd.caffe.train("solver.prototxt", log=fail)
