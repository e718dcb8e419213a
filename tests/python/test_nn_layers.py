"""Layers and initializers as PyTorch's users know them: arguments, results, states."""

import gc
import math
import sys
import unittest

import gradus as gd
from gradus import _core, nn
from gradus.nn import functional as F
from gradus.nn import init


def live():
    gc.collect()
    return _core._live_objects()


class Layers(unittest.TestCase):
    def test_positions_and_names_are_pytorch_s(self):
        conv = nn.Conv2d(2, 4, 3, 2, 1, 1, 2, False, "reflect")
        self.assertEqual((conv.kernel_size, conv.stride, conv.padding, conv.groups, conv.padding_mode, conv.bias),
                         ((3, 3), (2, 2), (1, 1), 2, "reflect", None))
        self.assertEqual(nn.Conv2d(1, 1, 3, padding="same")(gd.ones(1, 1, 5, 7)).shape, (1, 1, 5, 7))
        self.assertEqual(nn.Conv2d(1, 1, 3, padding="valid")(gd.ones(1, 1, 5, 7)).shape, (1, 1, 3, 5))
        norm = nn.BatchNorm2d(3, 1e-3, 0.2, False, False)
        self.assertEqual((norm.eps, norm.momentum, norm.affine, norm.track_running_stats), (1e-3, 0.2, False, False))
        self.assertIsNone(nn.BatchNorm1d(3, momentum=None).momentum)
        lstm = nn.LSTM(2, 3, 2, True, True, 0.0, True)
        self.assertEqual((lstm.num_layers, lstm.batch_first, lstm.bidirectional), (2, True, True))
        self.assertFalse(nn.GRU(2, 3).batch_first)
        self.assertEqual(nn.Linear(in_features=2, out_features=3, bias=False).in_features, 2)
        self.assertEqual(nn.ReLU(True)(gd.tensor([-1.0])).tolist(), [0])
        self.assertEqual(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)(gd.ones(1, 1, 2, 2)).shape,
                         (1, 1, 4, 4))
        self.assertEqual(nn.Softmax(dim=0)(gd.zeros(4)).tolist(), [0.25] * 4)
        self.assertEqual(repr(nn.Conv1d(1, 2, 3)), "Conv1d(in_channels=1, out_channels=2, kernel_size=(3,))")

    def test_values_that_would_change_the_meaning_are_refused(self):
        for make, word in ((lambda: nn.LSTM(2, 3, proj_size=1), "proj_size"),
                           (lambda: nn.Embedding(3, 2, max_norm=1.0), "max_norm"),
                           (lambda: nn.MSELoss(size_average=False), "size_average"),
                           (lambda: nn.CrossEntropyLoss(reduce=False), "reduce"),
                           (lambda: nn.ConvTranspose2d(1, 1, 2, padding_mode="reflect"), "padding_mode"),
                           (lambda: nn.TransformerEncoderLayer(4, 2, activation=gd.tanh), "activation")):
            with self.assertRaisesRegex(NotImplementedError, word):
                make()
        with self.assertRaisesRegex(TypeError, "needs the argument 'out_features'"):
            nn.Linear(3)
        with self.assertRaisesRegex(TypeError, "no argument 'strides'"):
            nn.Conv2d(1, 2, 3, strides=2)
        with self.assertRaisesRegex(ValueError, "reduction is 'median'"):
            nn.L1Loss(reduction="median")
        with self.assertRaisesRegex(AttributeError, "no attribute 'Linaer'"):
            nn.Linaer

    def test_options_are_attributes(self):
        net = gd.zoo.resnet18(num_classes=7)
        self.assertEqual((net.fc.in_features, net.fc.out_features), (512, 7))
        with self.assertRaisesRegex(AttributeError, r"kernel_size of a Conv2d is \(3, 3\); it is fixed"):
            nn.Conv2d(1, 1, 3).kernel_size = 5
        x, drop, act = gd.ones(1000), nn.Dropout(0.5), nn.LeakyReLU(0.5)
        drop.p, act.negative_slope = 0.0, 2
        self.assertEqual((drop.p, drop(x).tolist(), act(-x)[0].item()), (0.0, x.tolist(), -2))
        with self.assertRaisesRegex(ValueError, "p is 2"):
            drop.p = 2
        self.assertEqual(drop.p, 0)
        norm = nn.BatchNorm1d(2)
        norm.momentum = None
        self.assertIsNone(norm.momentum)

        class Mine(nn.Linear):
            def __init__(self, n):
                super().__init__(n, n)
                self.in_features = n
                self.rank = 3

        self.assertEqual((Mine(4).in_features, Mine(4).rank), (4, 3))

    def test_lazy_layers(self):
        net = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2), nn.Linear(None, 5))
        with self.assertRaisesRegex(RuntimeError, "0.*conv2d"):
            list(net.parameters())
        self.assertIsNone(net[0].in_channels)
        self.assertEqual(net(gd.ones(2, 3, 6, 6)).shape, (2, 5))
        self.assertEqual((net[0].in_channels, net[3].in_features, net[1].num_features), (3, 64, 4))
        self.assertEqual(len(list(net.parameters())), 8)

    def test_recurrent_layers(self):
        gd.manual_seed(1)
        lstm, x = nn.LSTM(2, 3, 2), gd.rand(5, 4, 2)
        y, (h, c) = lstm(x)
        again, _ = lstm(x, (gd.zeros(2, 4, 3), gd.zeros(2, 4, 3)))
        self.assertEqual(again.tolist(), y.tolist())
        self.assertEqual(lstm(input=x, hx=None)[0].tolist(), y.tolist())
        y, (h, c) = lstm(x)
        self.assertEqual((y[-1] - h[-1]).tolist(), gd.zeros(4, 3).tolist())
        y, (h, c) = lstm(x, lengths=gd.tensor([5, 3, 2, 1]))
        self.assertEqual(y[3, 1].tolist(), [0, 0, 0])
        gru = nn.GRU(2, 3, batch_first=True)
        y, h = gru(gd.rand(4, 5, 2))
        self.assertEqual((y.shape, h.shape), ((4, 5, 3), (1, 4, 3)))
        h, c = nn.LSTMCell(2, 3)(gd.rand(4, 2))
        h, c = nn.LSTMCell(2, 3)(gd.rand(4, 2), (h, c))
        self.assertEqual(nn.GRUCell(2, 3)(gd.rand(4, 2), hx=h).shape, (4, 3))
        self.assertEqual(list(lstm.state_dict())[:4], ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"])

    def test_attention(self):
        gd.manual_seed(1)
        attention, x = nn.MultiheadAttention(8, 2, batch_first=True), gd.rand(3, 4, 8)
        y, weights = attention(x, x, x)
        self.assertEqual((y.shape, weights.shape), ((3, 4, 8), (3, 4, 4)))
        fast, none = attention(x, x, x, need_weights=False)
        self.assertIsNone(none)
        self.assertLess(float(gd.max(gd.abs(fast - y))), 1e-5)
        self.assertEqual(attention(x, x, x, average_attn_weights=False)[1].shape, (3, 2, 4, 4))
        hide = gd.triu(gd.ones(4, 4), 1).to(gd.bool)
        _, weights = attention(x, x, x, attn_mask=hide)
        self.assertEqual(float(gd.sum(gd.triu(weights, 1))), 0)
        causal, _ = attention(x, x, x, need_weights=False, is_causal=True)
        masked, _ = attention(x, x, x, need_weights=False, attn_mask=hide)
        self.assertLess(float(gd.max(gd.abs(causal - masked))), 1e-5)
        model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
        self.assertEqual(model(x, x, tgt_mask=nn.Transformer.generate_square_subsequent_mask(4)).shape, (3, 4, 8))

    def test_losses_with_tensors(self):
        gd.manual_seed(1)
        x, target, w = gd.rand(4, 3), gd.tensor([0, 2, 1, 2]), gd.tensor([1.0, 2.0, 3.0])
        loss = nn.CrossEntropyLoss(w, label_smoothing=0.1)
        self.assertEqual(float(loss(x, target)), float(F.cross_entropy(x, target, w, label_smoothing=0.1)))
        self.assertEqual(list(loss.state_dict()), ["weight"])
        self.assertIsNone(nn.CrossEntropyLoss().weight)
        self.assertAlmostEqual(float(nn.CrossEntropyLoss()(x, target)), float(F.cross_entropy(x, target)), places=6)
        self.assertEqual(float(nn.Sequential(nn.MSELoss())[0](input=x, target=x)), 0)
        binary = nn.BCEWithLogitsLoss(pos_weight=gd.ones(3) * 2)
        self.assertNotEqual(float(binary(x, gd.ones(4, 3))), float(nn.BCEWithLogitsLoss()(x, gd.ones(4, 3))))
        self.assertEqual(binary.double().pos_weight.dtype, gd.float64)

    def test_other_layers(self):
        y, at = nn.MaxPool2d(2, return_indices=True)(gd.rand(1, 1, 4, 4))
        self.assertEqual(nn.MaxUnpool2d(2)(y, at).shape, (1, 1, 4, 4))
        self.assertEqual(nn.MaxUnpool2d(2)(y, at, output_size=(1, 1, 5, 5)).shape, (1, 1, 5, 5))
        self.assertEqual(nn.AdaptiveAvgPool2d((None, 2))(gd.rand(1, 1, 3, 4)).shape, (1, 1, 3, 2))
        self.assertEqual(nn.Sequential(nn.AdaptiveAvgPool2d((None, 2)))(gd.rand(1, 1, 3, 4)).shape, (1, 1, 3, 2))
        table = nn.Embedding.from_pretrained(gd.ones(4, 2))
        self.assertFalse(table.weight.requires_grad)
        self.assertEqual(table(gd.tensor([1, 3])).tolist(), [[1, 1], [1, 1]])
        bag = nn.EmbeddingBag(4, 2, mode="sum")
        self.assertEqual(bag(gd.tensor([0, 1, 2]), gd.tensor([0, 1])).shape, (2, 2))
        self.assertEqual(nn.Identity(5, x=3)(gd.ones(2)).tolist(), [1, 1])
        self.assertEqual(nn.CosineSimilarity()(x1=gd.ones(1, 3), x2=gd.ones(1, 3)).shape, (1,))

    def test_functions(self):
        x, table = gd.rand(2, 3, 4), gd.rand(5, 2)
        bags = F.embedding_bag(gd.tensor([0, 1, 2, 4]), table, gd.tensor([0, 3, 3]), mode="sum")
        self.assertEqual(bags.tolist(), [gd.sum(table[:3], 0).tolist(), [0, 0], table[4].tolist()])
        self.assertEqual(F.embedding_bag(gd.tensor([[1, 2]]), table, mode="max", padding_idx=2).tolist(), [table[1].tolist()])
        y, at = F.max_pool1d_with_indices(x, 2)
        self.assertEqual((y.shape, at.dtype), ((2, 3, 2), gd.int64))
        self.assertEqual(F.feature_alpha_dropout(x, 0.5, training=False).tolist(), x.tolist())
        dropped = F.feature_alpha_dropout(gd.zeros(50, 4, 3), 0.5, training=True)
        self.assertEqual(len({tuple(row) for sample in dropped.tolist() for row in sample}), 2)
        self.assertEqual(F.upsample_nearest(x.unsqueeze(0), scale_factor=2).shape, (1, 2, 6, 8))
        self.assertEqual(F.interpolate(gd.ones(1, 1, 3, 4), scale_factor=(2, 1.5), mode="bilinear").shape, (1, 1, 6, 6))
        z = gd.tensor([-1.0, 1.0])
        self.assertIs(F.threshold_(z, 0, 7), z)
        self.assertEqual(z.tolist(), [7, 1])

    def test_every_layer_is_there_and_says_its_arguments(self):
        import inspect

        for name in dir(nn):
            cls = getattr(nn, name)
            if name[0] != "_" and isinstance(cls, type) and issubclass(cls, nn.Module):
                inspect.signature(cls.__init__)
                self.assertTrue(cls.__doc__, name)
                self.assertEqual((cls.__module__, getattr(nn, cls.__name__)),
                                 (cls.__module__, cls), name)

    def test_names_of_gradus_torch(self):
        import gradus.torch as torch
        import gradus.torch.nn as tnn
        import gradus.torch.nn.functional as TF

        self.assertIs(tnn.Linear, nn.Linear)
        self.assertIs(torch.nn.Module, nn.Module)
        self.assertIs(tnn.Parameter, tnn.parameter.Parameter)
        self.assertIs(TF.relu, F.relu)
        self.assertIs(tnn.init.ones_, init.ones_)
        self.assertIs(tnn.modules.Conv2d, nn.Conv2d)


class Init(unittest.TestCase):
    def test_in_place(self):
        gd.manual_seed(3)
        net = nn.Linear(400, 300)
        p = net.weight
        for function, std in ((lambda w: init.xavier_uniform_(w, 2), 2 * math.sqrt(2 / 700)),
                              (init.xavier_normal_, math.sqrt(2 / 700)),
                              (lambda w: init.kaiming_uniform_(w, a=math.sqrt(5)), math.sqrt(1 / 3 / 400)),
                              (lambda w: init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu"), math.sqrt(2 / 300)),
                              (lambda w: init.normal_(w, 0.0, 0.02), 0.02), (lambda w: init.uniform_(w, -1, 1), 3**-0.5),
                              (lambda w: init.trunc_normal_(w, std=0.02), 0.02)):
            self.assertIs(function(p), p)
            self.assertAlmostEqual(float(gd.std(p)) / std, 1, delta=0.02)
            self.assertTrue(p.requires_grad and p.is_leaf)
        self.assertLess(abs(float(gd.mean(p))), 1e-3)
        q = init.orthogonal_(gd.empty(4, 6), gain=2)
        self.assertLess(float(gd.max(gd.abs(q @ q.T - 4 * gd.eye(4)))), 1e-5)
        self.assertEqual(init.constant_(gd.empty(2), 3).tolist(), [3, 3])
        self.assertEqual(init.ones_(gd.empty(1)).tolist(), [1])
        self.assertEqual(init.eye_(gd.empty(2, 3)).tolist(), [[1, 0, 0], [0, 1, 0]])
        self.assertEqual((init.sparse_(gd.empty(10, 4), 0.3) == 0).sum(0).tolist(), [3] * 4)
        conv = nn.Conv2d(2, 2, 3, padding=1, bias=False)
        init.dirac_(conv.weight)
        x = gd.rand(1, 2, 4, 4)
        self.assertEqual(conv(x).tolist(), x.tolist())
        self.assertLessEqual(float(init.trunc_normal_(gd.empty(1000), 0, 5, -1, 1).abs().max()), 1)

    def test_mistakes(self):
        with self.assertRaisesRegex(ValueError, "at least 2 dimensions"):
            init.xavier_uniform_(gd.empty(3))
        with self.assertRaisesRegex(ValueError, "mode is 'fan'"):
            init.kaiming_normal_(gd.empty(3, 3), mode="fan")
        with self.assertRaisesRegex(ValueError, "nonlinearity is 'swish'"):
            init.calculate_gain("swish")


if __name__ == "__main__":
    sys.exit(unittest.main())
