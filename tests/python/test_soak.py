"""Long runs of small calls: memory and live objects return to the start. GRADUS_TEST_FULL=1 runs the counts of the long form:
ten million ops, a million calls of a jit, a thousand loaders that are left early, eight threads."""
import gc
import os
import threading
import unittest

import gradus as gd
from gradus import _core

FULL = bool(os.environ.get("GRADUS_TEST_FULL"))
SANITIZED = "san" in os.environ.get("LD_PRELOAD", "")  # freed memory is kept for a while


def resident():
    """The memory of the process in MiB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2 ** 20


class Soak(unittest.TestCase):
    def run_soak(self, count, step, threads=1):
        """Calls step(i) `count` times, a tenth of it before the measurement begins."""
        def work(begin, end):
            try:
                for i in range(begin, end):
                    step(i)
            except BaseException as mistake:  # of a thread
                failures.append(mistake)

        failures = []
        work(0, count // 10)
        gc.collect()
        live, memory = _core._live_objects(), resident()
        if threads == 1:
            work(0, count)
        else:
            group = [threading.Thread(target=work, args=(0, count // threads)) for _ in range(threads)]
            for thread in group:
                thread.start()
            for thread in group:
                thread.join()
        gc.collect()
        if failures:
            raise failures[0]
        self.assertEqual(_core._live_objects(), live)
        if not SANITIZED:
            self.assertLess(resident() - memory, 16, "MiB")

    def test_small_ops(self):
        x, w = gd.ones(2, 3), gd.ones(3, 2, requires_grad=True)

        def step(i):
            y = (x @ w * 2.0 + 1).relu()[0].sum()
            if i % 8 == 0:
                w.grad = None
                y.backward()
                y.tolist()

        self.run_soak(1_000_000 if FULL else 4_000, step)  # ten ops each

    def test_calls_that_fail(self):
        def step(i):
            try:
                gd.ones(2, 3) @ gd.ones(i % 2 + 4, 1)
            except ValueError:
                pass

        self.run_soak(100_000 if FULL else 1_000, step)

    def test_modules(self):
        class Block(gd.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = gd.nn.Linear(2, 2)

            def forward(self, x):
                return {"y": self.fc(x)}

        def step(i):
            net = gd.nn.Sequential(Block().fc, gd.nn.Linear(2, 2))
            net(gd.ones(1, 2))
            Block()(gd.ones(1, 2))["y"].sum().backward()

        self.run_soak(50_000 if FULL else 300, step)

    def test_calls_of_a_jit(self):
        @gd.jit
        def f(x, options):
            return {"y": x * options["scale"] + 1}

        x = gd.ones(4)
        self.run_soak(1_000_000 if FULL else 3_000, lambda i: f(x, {"scale": 2.0})["y"])

    def test_traces_of_a_jit(self):
        def step(i):
            f = gd.jit(lambda x, n: x * n)
            f(gd.ones(i % 5 + 1), i % 3)

        self.run_soak(20_000 if FULL else 100, step)

    def test_loaders_that_are_left_early(self):
        data = [(gd.ones(3) * i, i) for i in range(32)]

        def step(i):
            for batch in gd.data.DataLoader(data, batch_size=4, shuffle=True, num_workers=i % 3):
                break

        self.run_soak(1_000 if FULL else 30, step)

    def test_threads(self):
        w = gd.ones(8, 8)

        def step(i):
            x = gd.ones(4, 8, requires_grad=True)
            (x @ w).tanh().sum().backward()
            x.grad.tolist()

        self.run_soak(400_000 if FULL else 1_600, step, threads=8)


if __name__ == "__main__":
    unittest.main()
