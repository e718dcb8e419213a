"""The package on a GPU: results, sharing with PyTorch, loaders, errors. It needs a CUDA device; PyTorch's part a PyTorch with CUDA."""

import gc
import subprocess
import sys
import unittest

import gradus as gd
import gradus.torch as gt

try:
    gd.empty(1, device="cuda")
    no_gpu = None
except gd.DeviceError as e:
    no_gpu = str(e).split(":")[0]
try:
    import torch

    if not torch.cuda.is_available():
        torch = None
except ImportError:
    torch = None


def setUpModule():
    if no_gpu:
        raise unittest.SkipTest(no_gpu)


def make_net():
    gd.manual_seed(3)
    return gd.nn.Sequential(gd.nn.Conv2d(1, 4, 3, padding=1), gd.nn.ReLU(), gd.nn.Flatten(), gd.nn.Linear(4 * 8 * 8, 3))


class Training(unittest.TestCase):
    def losses(self, device, jit):
        net = make_net().to(device)
        opt = gd.optim.AdamW(net.parameters(), lr=0.01)
        gd.manual_seed(5)
        x, y = gd.randn(16, 1, 8, 8).to(device), (gd.rand(16) * 3).to(gd.int64).to(device)

        def step(x, y):
            opt.zero_grad()
            loss = gd.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            return loss

        run = gd.jit(step) if jit else step
        return [run(x, y).item() for _ in range(10)]

    def test_a_step_on_the_gpu_is_that_of_the_cpu(self):
        cpu, eager, plan = self.losses("cpu", False), self.losses("cuda", False), self.losses("cuda", True)
        for a, b, c in zip(cpu, eager, plan):
            self.assertAlmostEqual(a, b, delta=1e-4)
            self.assertAlmostEqual(b, c, delta=1e-5)
        self.assertLess(cpu[-1], cpu[0])

    def test_fit_with_a_loader_that_moves_batches(self):
        gd.manual_seed(1)
        data = [(gd.randn(1, 8, 8), i % 3) for i in range(64)]
        for options in ({}, {"num_workers": 2}, {"num_workers": 2, "processes": True}):
            with self.subTest(**options):
                loader = gd.data.DataLoader(data, batch_size=16, device="cuda", **options)
                for x, y in loader:
                    self.assertEqual((x.device.type, y.device.type, x.shape), ("cuda", "cuda", (16, 1, 8, 8)))
        net = make_net().to("cuda")
        net.compile(optimizer="adamw", loss="cross_entropy", metrics="accuracy")
        history = net.fit(gd.data.DataLoader(data, batch_size=16, device="cuda"), epochs=3, verbose=0)
        self.assertEqual(len(history.history["loss"]), 3)

    def test_indexing_and_methods(self):
        x = gd.arange(12.0).reshape(3, 4).cuda()
        self.assertTrue(x.is_cuda)
        self.assertEqual(x[1:, ::2].tolist(), [[4, 6], [8, 10]])
        x[0] = 7
        x[x > 9] = 0
        self.assertEqual(x.cpu().tolist(), [[7, 7, 7, 7], [4, 5, 6, 7], [8, 9, 0, 0]])
        self.assertEqual(repr(x[0, :2].sum().item()), "14.0")


class Errors(unittest.TestCase):
    def message(self, call):
        with self.assertRaises(gd.IndexError) as caught:
            call()
            gd.synchronize("cuda")
        return str(caught.exception)

    def test_a_bad_index_names_op_and_shapes(self):
        x, i = gd.ones(3, 4, device="cuda"), gd.tensor([0, 5], device="cuda")
        text = self.message(lambda: x[i].tolist())
        self.assertIn("index_axes(x f32[3,4], indices i64[2])", text)
        self.assertIn("index 5", text)
        text = self.message(lambda: gd.cross_entropy(x, gd.tensor([1, 2, 9], device="cuda")).item())
        self.assertIn("target", text)
        self.assertIn("f32[3,4]", text)
        self.assertEqual((x + 1).sum().item(), 24.0)  # and the device goes on

    def test_devices_do_not_mix(self):
        with self.assertRaises(gd.DeviceError) as caught:
            gd.ones(2, device="cuda") + gd.ones(2)
        self.assertIn("cuda", str(caught.exception))


@unittest.skipUnless(torch, "PyTorch with CUDA is not installed")
class Sharing(unittest.TestCase):
    def test_memory_is_shared_both_ways(self):
        t = torch.arange(6.0, device="cuda").reshape(2, 3)
        x = gd.from_dlpack(t)
        self.assertEqual(torch.from_dlpack(x).data_ptr(), t.data_ptr())
        t += 1
        torch.cuda.synchronize()
        self.assertEqual(x.tolist(), [[1, 2, 3], [4, 5, 6]])
        y = gd.ones(4, device="cuda")
        u = torch.from_dlpack(y)
        u *= 3
        torch.cuda.synchronize()
        self.assertEqual(y.tolist(), [3, 3, 3, 3])
        for dtype in (torch.bfloat16, torch.float16, torch.int64, torch.bool):
            t = torch.ones(5, device="cuda").to(dtype)
            self.assertEqual(torch.from_dlpack(gd.from_dlpack(t)).data_ptr(), t.data_ptr())

    def test_either_side_may_be_freed_first(self):
        for _ in range(50):
            t = torch.full((1 << 18,), 2.0, device="cuda")
            x = gd.from_dlpack(t)
            del t
            other = torch.full((1 << 18,), 9.0, device="cuda")
            self.assertEqual((x * 2).sum().item(), 4.0 * (1 << 18))
            y = gd.full((1 << 18,), 3.0, device="cuda")
            u = torch.from_dlpack(y)
            del y, x
            gc.collect()
            more = gd.full((1 << 18,), 8.0, device="cuda")
            self.assertEqual(u.sum().item(), 3.0 * (1 << 18))
            del other, more

    def test_streams_are_honoured(self):
        """A producer that is still at work: a consumer that did not wait would read what was there before."""
        big = torch.randn(4096, 4096, device="cuda") / 64
        for _ in range(20):
            stream = torch.cuda.Stream()
            t = torch.zeros(1 << 20, device="cuda")
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                b = big
                for _ in range(8):
                    b = b @ big
                t += b.flatten()[: 1 << 20] * 0 + 1
                x = gd.from_dlpack(t)
                total = (x * 1).sum()
            self.assertEqual(total.item(), float(1 << 20))
        mine = gd.from_dlpack(big)
        for _ in range(20):
            y = gd.zeros(1 << 20, device="cuda")
            gd.synchronize("cuda")
            b = mine
            for _ in range(8):
                b = b @ mine
            y += b.reshape(-1)[: 1 << 20] * 0 + 1
            with torch.cuda.stream(torch.cuda.Stream()):
                self.assertEqual(torch.from_dlpack(y).sum().item(), float(1 << 20))

    def test_the_race_is_there_without_streams(self):
        """The same consumer with stream=-1, which asks the producer not to wait, at least once reads too early; otherwise the
        test above could not fail."""
        big = gd.from_dlpack(torch.randn(4096, 4096, device="cuda") / 64)
        early = 0
        for _ in range(20):
            y = gd.zeros(1 << 20, device="cuda")
            gd.synchronize("cuda")
            b = big
            for _ in range(8):
                b = b @ big
            y += b.reshape(-1)[: 1 << 20] * 0 + 1
            with torch.cuda.stream(torch.cuda.Stream()):
                u = torch.utils.dlpack.from_dlpack(y.__dlpack__(stream=-1))
                early += u.sum().item() != float(1 << 20)
            gd.synchronize("cuda")
        self.assertGreater(early, 0)

    def test_results_agree_with_torch(self):
        torch.manual_seed(1)
        t = torch.randn(64, 32, device="cuda")
        w = torch.randn(16, 32, device="cuda", requires_grad=True)
        loss = torch.nn.functional.linear(t, w).softmax(-1).log().mean()
        loss.backward()
        v = gd.from_dlpack(w.detach()).requires_grad_()
        ours = gt.nn.functional.linear(gd.from_dlpack(t), v).softmax(-1).log().mean()
        ours.backward()
        self.assertAlmostEqual(ours.item(), loss.item(), places=5)
        self.assertLess((torch.from_dlpack(v.grad) - w.grad).abs().max().item(), 1e-5)


class Package(unittest.TestCase):
    def test_the_libraries_of_nvidia_are_found(self):
        code = "import gradus as gd; x = gd.ones(64, 64, device='cuda', dtype=gd.bfloat16); print((x @ x).sum().item())"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual((done.stdout.strip(), done.stderr), ("262144.0", ""))
