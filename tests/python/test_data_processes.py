"""Loaders with worker processes: the same batches as threads, shared memory, processes that die, what cannot be pickled."""

import gc
import os
import signal
import sys
import threading
import time
import unittest

import gradus as gd
from gradus import _core
from gradus.data import DataLoader, Dataset, Digits, RandomSampler

try:
    import numpy as np
except ImportError:
    np = None


class Mixed(Dataset):
    """Nested samples with tensors, texts and random numbers."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i, rng=None):
        return {"x": gd.full((3, 2), float(i)), "n": (i, rng.random()), "t": f"s{i}", "u": gd.data.get_sample_rng().getrandbits(40)}


class Does(Dataset):
    """A dataset whose sample 9 does something."""

    def __init__(self, what, count=40):
        self.what, self.count = what, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if i == 9:
            self.what()
        return gd.tensor(float(i)), i


class Large(Dataset):
    """Batches of a megabyte, and where they came from."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return gd.full((256, 256), float(i)), os.getpid()


class Made(Mixed):
    """Random numbers, and the process that made them."""

    def __getitem__(self, i, rng):
        return rng.random(), os.getpid()


class OddError(Exception):
    """Cannot be pickled: it needs two arguments."""

    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


def raise_key():
    raise KeyError("nine")


def raise_odd():
    raise OddError(1, 2)


def end():
    os._exit(7)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def wait():
    time.sleep(600)


def nothing():
    pass


def note_start(number):
    os.environ["GRADUS_TEST_WORKER"] = str(number)


class Worker(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        info = gd.data.get_worker_info()
        time.sleep(0.002)
        return info.id, int(os.environ["GRADUS_TEST_WORKER"]), info.num_workers, os.getpid()


def plain(batch):
    if isinstance(batch, gd.Tensor):
        return batch.tolist()
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    return type(batch)(map(plain, batch)) if isinstance(batch, (tuple, list)) else batch


def epoch(loader):
    return [plain(batch) for batch in loader]


def children():
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as file:
        return len(file.read().split())


def descriptors():
    return len(os.listdir("/proc/self/fd"))


class Processes(unittest.TestCase):
    def test_processes_and_threads_give_the_same_batches(self):
        data = Mixed(33)
        expected = None
        loaders = [DataLoader(data, 4, shuffle=True, seed=3, num_workers=n, processes=p, persistent_workers=True)
                   for n, p in ((0, False), (4, False), (1, True), (4, True))]
        for loader in loaders:
            epochs = [epoch(loader) for _ in range(2)]
            expected = expected or epochs
            self.assertEqual(epochs, expected)
        sampled = [DataLoader(data, 4, sampler=RandomSampler(data, True, 20), seed=3, num_workers=2, processes=p) for p in (False, True)]
        self.assertEqual(*map(epoch, sampled))
        lists = [DataLoader(data, batch_sampler=[[3], [1, 2]], seed=3, num_workers=2, processes=p) for p in (False, True)]
        self.assertEqual(*map(epoch, lists))

    def test_a_built_in_dataset_inside_one_of_python(self):
        data = Digits(12, seed=4).map(first_row)
        loaders = [DataLoader(data, 5, seed=1, num_workers=1, processes=p) for p in (False, True)]
        self.assertEqual(*map(epoch, loaders))

    def test_an_epoch_continues_where_it_was_saved(self):
        loader = DataLoader(Mixed(30), 4, shuffle=True, seed=3, num_workers=2, processes=True, persistent_workers=True)
        it = iter(loader)
        next(it), next(it)
        state = loader.state_dict()
        rest = [plain(b) for b in it]
        loader.load_state_dict(state)
        self.assertEqual(epoch(loader), rest)

    def test_workers_have_numbers_and_their_own_start(self):
        rows = [r for b in DataLoader(Worker(), 2, num_workers=2, processes=True, worker_init_fn=note_start)
                for r in zip(*plain(b))]
        self.assertEqual({r[:3] for r in rows}, {(0, 0, 2), (1, 1, 2)})
        self.assertEqual(len({r[3] for r in rows}), 2)
        self.assertNotIn(os.getpid(), {r[3] for r in rows})

    def test_memory_is_used_again_when_its_batch_is_freed(self):
        loader = DataLoader(Large(), 4, num_workers=1, processes=True, persistent_workers=True)
        kept = [x for x, _ in loader]  # all batches may be kept
        for k, x in enumerate(kept):
            self.assertEqual([float(x[i, 3, 5]) for i in range(4)], [4 * k + i for i in range(4)])
        before = descriptors()
        del kept, x
        for _ in range(2):
            seen = [float(x[0, 0, 0]) for x, _ in loader]
            self.assertEqual(seen, [4 * k for k in range(16)])
        self.assertLessEqual(len(loader._pool.processes[0].segments), 8)
        self.assertLessEqual(descriptors(), before)

    def test_a_batch_outlives_its_loader(self):
        loader = DataLoader(Large(), 4, num_workers=1, processes=True)
        it = iter(loader)
        x, _ = next(it)
        del it, loader
        gc.collect()
        self.assertEqual(float(x.sum()), 65536 * (0 + 1 + 2 + 3))
        x += 1  # its memory is the batch's alone
        self.assertEqual(float(x[3, 0, 0]), 4)


def first_row(sample, rng):
    image, label = sample
    return image[0, 14], label, rng.random()


class Failures(unittest.TestCase):
    def test_an_exception_has_its_type_its_traceback_and_the_sample(self):
        import traceback

        for what, kind, words in ((raise_key, KeyError, "nine"), (raise_odd, RuntimeError, "OddError: 1 and 2")):
            text = ""
            try:
                epoch(DataLoader(Does(what), 4, num_workers=2, processes=True))
            except kind:
                text = traceback.format_exc()
            self.assertIn(words, text)
            self.assertIn("sample 9 of Does", text)
            self.assertIn(f"in {what.__name__}", text)  # the traceback in the process

    def test_a_process_that_dies_is_an_error_at_once(self):
        for what, words in ((end, "exit status 7"), (kill, "SIGKILL")):
            loader = DataLoader(Does(what), 4, num_workers=2, processes=True)
            it = iter(loader)
            next(it)
            began = time.monotonic()
            with self.assertRaisesRegex(gd.StateError, f"worker process . .*{words}.*samples 8, 9, 10, 11"):
                for _ in it:
                    pass
            self.assertLess(time.monotonic() - began, 10)  # far less, but for a busy machine
            del it
            loader.dataset.what = nothing  # other processes start
            self.assertEqual(len(epoch(loader)), 10)

    def test_processes_that_are_killed_from_outside(self):
        loader = DataLoader(Does(wait), 2, num_workers=2, processes=True)
        it = iter(loader)
        next(it)
        for p in loader._pool.processes:
            os.kill(p.process.pid, signal.SIGKILL)
        with self.assertRaisesRegex(gd.StateError, "SIGKILL"):
            for _ in it:
                pass

    def test_a_timeout(self):
        loader = DataLoader(Does(wait), 4, num_workers=1, processes=True, timeout=0.5)
        with self.assertRaisesRegex(gd.StateError, "timeout"):
            epoch(loader)

    def test_what_cannot_be_pickled_names_threads(self):
        data = Does(lambda: None)
        with self.assertRaisesRegex(TypeError, "Does cannot be pickled.*processes=False"):
            epoch(DataLoader(data, 4, num_workers=1, processes=True))
        self.assertEqual(len(epoch(DataLoader(data, 4, num_workers=1))), 10)

    def test_what_a_process_cannot_import(self):
        class Local(Does):
            pass

        Local.__qualname__ = "Local"
        sys.modules[__name__].Local = Local  # here, but not there
        try:
            with self.assertRaises(AttributeError) as raised:
                epoch(DataLoader(Local(nothing), 4, num_workers=1, processes=True))
        finally:
            del sys.modules[__name__].Local
        self.assertIn("processes=False", "".join(raised.exception.__notes__))


class Ends(unittest.TestCase):
    def test_loaders_that_are_left_early_leave_nothing(self):
        def leave():
            for k, persistent in enumerate((False, True, False)):
                loader = DataLoader(Does(nothing), 4, num_workers=2, processes=True, persistent_workers=persistent)
                it = iter(loader)
                next(it)
                if k == 2:
                    del it
                    it = iter(loader)  # again
                    next(it)
            del it, loader
            gc.collect()
            return _core._live_objects(), threading.active_count(), descriptors()

        first = leave()
        for _ in range(3):
            self.assertEqual(leave(), first)

    def test_leaving_does_not_wait_for_a_slow_sample(self):
        loader = DataLoader(Does(wait), 4, num_workers=2, processes=True)
        it = iter(loader)
        next(it), next(it)
        began = time.monotonic()
        del it, loader
        gc.collect()
        self.assertLess(time.monotonic() - began, 30)  # 0.1 s; the sample takes 600

    def test_a_child_of_fork_makes_the_batches_itself(self):
        loader = DataLoader(Made(24), 4, shuffle=True, seed=3, num_workers=2, processes=True)
        expected = [b[0] for b in epoch(DataLoader(Made(24), 4, shuffle=True, seed=3))]
        it = iter(loader)
        first = [plain(next(it))[0]]
        child = os.fork()
        if child == 0:
            status = 1
            try:
                rest = [plain(b) for b in it]
                status = 0 if first + [b[0] for b in rest] == expected else 2
                if {pid for b in rest for pid in b[1]} != {os.getpid()}:
                    status = 3
            finally:
                os._exit(status)
        self.assertEqual(first + [plain(b)[0] for b in it], expected)
        end = time.monotonic() + 30
        while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
            time.sleep(0.01)
        if done == (0, 0):
            os.kill(child, 9)
            os.waitpid(child, 0)
        self.assertEqual(done[1], 0)

    def test_a_program_ends_while_processes_run(self):
        import subprocess
        import tempfile

        program = ("import gradus as gd, time\n"
                   "class D:\n"
                   "    def __len__(self): return 1000\n"
                   "    def __getitem__(self, i): time.sleep(0.01); return i\n"
                   "if __name__ == '__main__':\n"
                   "    it = iter(gd.data.DataLoader(D(), 4, num_workers=2, processes=True))\n"
                   "    print(next(it).tolist())\n")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w") as file:
                file.write(program)
            done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "[0, 1, 2, 3]\n", ""))
            with open(path, "w") as file:  # without the guard: an error that names it
                file.write(program.replace("if __name__ == '__main__':", "if True:"))
            done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("__main__", done.stderr)


if __name__ == "__main__":
    unittest.main()
