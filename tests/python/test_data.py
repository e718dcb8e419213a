"""Datasets, transforms, samplers and loaders with threads: order, structure, positions, failures, what is freed."""

import array
import collections
import copy
import gc
import itertools
import logging
import os
import pickle
import sys
import threading
import time
import unittest
import weakref

import gradus as gd
from gradus import _core, transforms as T
from gradus.data import (BatchSampler, ConcatDataset, DataLoader, Dataset, Digits, IterableDataset, RandomSampler, StackDataset,
                         Subset, TensorDataset)

try:
    import numpy as np
except ImportError:
    np = None
try:
    from PIL import Image
except ImportError:
    Image = None


class Numbers(Dataset):
    """Sample i: its number and a random one."""

    def __init__(self, count, fails=(), waits=0):
        self.count, self.fails, self.waits, self.calls = count, fails, waits, 0

    def __len__(self):
        return self.count

    def __getitem__(self, i, rng=None):
        if not 0 <= i < self.count:
            raise IndexError(f"there is no number {i}")
        if i in self.fails:
            raise KeyError(f"number {i} is missing")
        if self.waits:
            time.sleep(self.waits)
        self.calls += 1
        return gd.tensor([float(i), rng.random() if rng else -1.0]), i


def plain(batch):
    """A batch as Python values."""
    if isinstance(batch, gd.Tensor):
        return batch.tolist()
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch)(map(plain, batch)) if not hasattr(batch, "_make") else tuple(map(plain, batch))
    return batch


def epoch(loader):
    return [plain(batch) for batch in loader]


def numbers(loader):
    """The samples of an epoch, in order."""
    return [int(i) for batch in loader for i in batch[-1].tolist()]


class Datasets(unittest.TestCase):
    def test_a_built_in_dataset_is_a_sequence_of_tuples(self):
        digits = Digits(20, seed=1)
        image, label = digits[3]
        self.assertEqual((len(digits), image.shape, label.dtype), (20, (1, 28, 28), gd.int64))
        self.assertEqual(digits[-1][0].tolist(), digits[19][0].tolist())
        self.assertEqual([int(y) for _, y in digits], [int(digits[i][1]) for i in range(20)])
        self.assertEqual(digits.classes, [str(i) for i in range(10)])
        self.assertEqual(digits.class_to_idx["7"], 7)
        for index in (20, -21):
            with self.assertRaisesRegex(IndexError, "20 samples"):
                digits[index]
        self.assertIsInstance(digits, Dataset)
        part = digits[4:8]
        self.assertEqual([int(y) for _, y in part], [int(digits[i][1]) for i in range(4, 8)])

    def test_records_have_their_names_and_parts(self):
        for name in ("MNIST", "FashionMNIST", "CIFAR10", "CIFAR100", "ImageFolder", "ImageList", "CSV", "IDX", "NumPy", "Text",
                     "Tokens", "Digits"):
            self.assertIn(name, dir(gd.data))
            self.assertTrue(issubclass(getattr(gd.data, name), Dataset), name)
        folder = os.path.join(os.environ["GRADUS_BUILD"], "no_such_folder")
        for arguments in ({}, {"train": False}, {"part": "test"}):
            with self.assertRaisesRegex(OSError, "no_such_folder"):
                gd.data.MNIST(folder, **arguments)
        with self.assertRaisesRegex(ValueError, "contradict"):
            gd.data.MNIST(folder, train=True, part="test")
        with self.assertRaises(AttributeError):
            gd.data.NoSuchDataset

    def test_a_table(self):
        path = os.path.join(os.environ["GRADUS_BUILD"], f"table_{os.getpid()}.csv")
        self.addCleanup(os.remove, path)
        with open(path, "w") as file:
            file.write("a,b,kind\n1,2,cat\n3,4,dog\n5,6,cat\n")
        table = gd.data.CSV(path, "kind")
        self.assertEqual((len(table), table.classes, table[1][0].tolist(), int(table[2][1])), (3, ["cat", "dog"], [3, 4], 0))
        self.assertIn("kind", table.layout)
        self.assertEqual(pickle.loads(pickle.dumps(table))[1][0].tolist(), [3, 4])

    def test_tensors_subsets_and_sums(self):
        x, y = gd.arange(10).reshape(5, 2), gd.arange(5)
        data = TensorDataset(x, y)
        self.assertEqual((len(data), plain(data[2])), (5, ([4, 5], 2)))
        part = Subset(data, [4, 0, -2])
        self.assertEqual([int(s[1]) for s in part], [4, 0, 3])
        both = data + part
        self.assertEqual([int(s[1]) for s in both], [0, 1, 2, 3, 4, 4, 0, 3])
        self.assertTrue(_core._dataset_made(both))
        mixed = ConcatDataset([Numbers(3), data])
        self.assertFalse(_core._dataset_made(mixed))
        self.assertEqual((len(mixed), int(mixed[4][1]), mixed.cumulative_sizes), (8, 1, [3, 8]))
        self.assertEqual(plain(StackDataset(data, data)[1]), ([2, 3], 1, [2, 3], 1))
        with self.assertRaisesRegex(ValueError, "3, 5 samples"):
            StackDataset(Numbers(3), data)

    def test_random_splits_are_disjoint_and_repeatable(self):
        data = TensorDataset(gd.arange(100))
        for lengths in ([70, 30], [0.7, 0.3], [0.5, 0.25, 0.25]):
            parts = gd.data.random_split(data, lengths, seed=3)
            self.assertEqual(sorted(i for p in parts for i in p.indices), list(range(100)))
            self.assertEqual([p.indices for p in gd.data.random_split(data, lengths, seed=3)], [p.indices for p in parts])
        self.assertNotEqual(gd.data.random_split(data, [70, 30], seed=4)[0].indices, parts[0].indices)
        with self.assertRaisesRegex(ValueError, "must be 100"):
            gd.data.random_split(data, [70, 40])

    def test_map_filter_and_transform(self):
        data = TensorDataset(gd.arange(10))
        self.assertEqual(data.map(lambda s: (s[0] * 2, "x"))[3][0].item(), 6)
        odd = data.filter(lambda s: int(s[0]) % 2)
        self.assertEqual([int(s[0]) for s in odd], [1, 3, 5, 7, 9])
        drawn = data.map(lambda sample, rng: (sample[0], rng.randrange(1000)))
        first = epoch(DataLoader(drawn, batch_size=5, seed=1))
        self.assertEqual(first, epoch(DataLoader(drawn, batch_size=5, seed=1, num_workers=3)))
        self.assertNotEqual(first, epoch(DataLoader(drawn, batch_size=5, seed=2)))
        scaled = Digits(4).transform(T.Scale(2.0), T.Normalize(1.0, 0.5))
        self.assertTrue(_core._dataset_made(scaled))
        self.assertTrue(bool((scaled[1][0] == (Digits(4)[1][0] * 2 - 1) / 0.5).all()))

    def test_random_numbers_reach_datasets_inside_of_others(self):
        inner = Numbers(6)
        for data in (Subset(inner, [3, 1]), ConcatDataset([inner, inner]), inner.map(lambda s: s), StackDataset(inner, inner),
                     inner.filter(lambda s: s[1] > 2), inner.transform(T.Lambda(lambda x: x))):
            first, *_ = next(iter(DataLoader(data, 2, seed=1)))
            rows = first[0] if isinstance(first, tuple) else first
            self.assertTrue(all(0 <= r < 1 for r in rows[:, 1].tolist()))  # -1: none
            data[0]  # outside of a loader

    def test_transforms_of_a_built_in_dataset_stay_in_the_library_if_they_can(self):
        chain = T.Compose([T.RandomCrop(28, padding=2), T.Normalize(0.1, 0.3)])
        inside = Digits(12, transform=chain)
        outside = Digits(12, transform=lambda x: chain(x))
        self.assertTrue(_core._dataset_made(inside))
        self.assertFalse(_core._dataset_made(outside))
        self.assertIsInstance(outside, Digits)
        self.assertEqual(outside.classes, inside.classes)
        loaders = [DataLoader(d, batch_size=4, seed=9, shuffle=True) for d in (inside, outside)]
        for _ in range(2):  # the same random numbers in each epoch
            self.assertEqual(*map(epoch, loaders))
        labels = Digits(5, target_transform=lambda y: int(y) + 100)
        self.assertGreaterEqual(labels[0][1], 100)

    def test_datasets_can_be_pickled(self):
        for data in (Digits(5, seed=2), Digits(5)[1:4], TensorDataset(gd.arange(3)), Digits(3) + Digits(2),
                     Digits(4, transform=T.Normalize(0.5, 0.5)), Digits(4, transform=T.Compose([T.ToTensor()]))):
            again = pickle.loads(pickle.dumps(data))
            self.assertEqual((type(again), len(again)), (type(data), len(data)))
            self.assertEqual(plain(again[1]), plain(data[1]))
            self.assertIs(copy.deepcopy(data), data)


class Transforms(unittest.TestCase):
    def test_calls_names_and_arguments(self):
        image = gd.rand(3, 8, 8)
        self.assertEqual(T.Resize((4, 6))(image).shape, (3, 4, 6))
        self.assertEqual(T.CenterCrop(5)(image).shape, (3, 5, 5))
        self.assertEqual(T.Pad(2, fill=1.0)(image).shape, (3, 12, 12))
        self.assertEqual(T.Grayscale(num_output_channels=3)(image).shape, (3, 8, 8))
        self.assertEqual(T.RandomGrayscale(1.0)(image).shape, (3, 8, 8))
        normal = T.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
        self.assertLess(float((normal(image) - (image - 0.5) / 0.5).abs().max()), 1e-6)
        self.assertTrue(bool((T.RandomHorizontalFlip(1.0)(image) == gd.flip(image, axis=2)).all()))
        self.assertTrue(bool((T.RandomVerticalFlip(p=1.0)(image) == gd.flip(image, axis=1)).all()))
        self.assertEqual(repr(T.CenterCrop(5)), "CenterCrop(5)")
        self.assertEqual(pickle.loads(pickle.dumps(T.Resize((4, 6))))(image).shape, (3, 4, 6))
        with self.assertRaisesRegex(ValueError, "std"):
            T.Normalize(0.5, 0.0)
        with self.assertRaises(AttributeError):
            T.NoSuchTransform

    def test_random_ones_follow_the_seed(self):
        image, crop = gd.rand(3, 32, 32), T.Compose([T.RandomCrop(8), T.RandomHorizontalFlip()])
        gd.manual_seed(4)
        first = [plain(crop(image)) for _ in range(3)]
        gd.manual_seed(4)
        self.assertEqual(first, [plain(crop(image)) for _ in range(3)])
        self.assertNotEqual(first[0], first[1])

    def test_functions_and_choices(self):
        x = gd.ones(1, 2, 2)
        self.assertEqual(T.Lambda(lambda t: t * 3)(x).sum().item(), 12)
        self.assertEqual(T.RandomApply([T.Lambda(lambda t: t * 3)], p=0)(x).sum().item(), 4)
        self.assertIn(T.RandomChoice([T.Scale(2.0), T.Scale(5.0)])(x).sum().item(), (8, 20))
        with self.assertRaisesRegex(TypeError, "function"):
            T.Lambda(3)

    def test_bytes_become_floats(self):
        pixels = gd.full((2, 3, 4), 255, dtype=gd.uint8)
        self.assertEqual((T.ToTensor()(pixels).dtype, T.ToTensor()(pixels).max().item()), (gd.float32, 1.0))

    @unittest.skipIf(np is None, "needs NumPy")
    def test_arrays_of_numpy_have_channels_last(self):
        a = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
        y = T.ToTensor()(a)
        self.assertEqual(y.shape, (3, 2, 4))
        self.assertAlmostEqual(y[2, 1, 3].item(), 23 / 255)
        self.assertEqual(T.CenterCrop(2)(a).shape, (3, 2, 2))

    @unittest.skipIf(Image is None, "needs Pillow")
    def test_images_of_pil(self):
        image = Image.new("RGB", (6, 4), (255, 0, 51))
        y = T.Compose([T.Resize((2, 3)), T.ToTensor()])(image)
        self.assertEqual((y.shape, y[2, 0, 0].item()), ((3, 2, 3), (gd.tensor(51.0) / 255).item()))


class Batches(unittest.TestCase):
    def test_any_number_of_threads_gives_the_same_batches(self):
        for make in (lambda: Numbers(23), lambda: Digits(23).transform(T.RandomCrop(8)), lambda: TensorDataset(gd.arange(23))):
            expected = None
            for workers in (0, 1, 4):
                for drop_last in (False, True):
                    loader = DataLoader(make(), batch_size=5, shuffle=True, seed=7, num_workers=workers, drop_last=drop_last)
                    epochs = [epoch(loader) for _ in range(3)]
                    self.assertEqual(len(loader), 4 if drop_last else 5)
                    self.assertEqual([len(e) for e in epochs], [len(loader)] * 3)
                    expected = expected or epochs
                    self.assertEqual(epochs, [e[:len(loader)] for e in expected])
            self.assertNotEqual(expected[0], expected[1])

    def test_the_seed_follows_from_manual_seed(self):
        gd.manual_seed(1)
        first = [numbers(DataLoader(Numbers(50), 10, shuffle=True)) for _ in range(2)]
        gd.manual_seed(1)
        self.assertEqual(first, [numbers(DataLoader(Numbers(50), 10, shuffle=True)) for _ in range(2)])
        self.assertNotEqual(*first)
        self.assertEqual(sorted(first[0]), list(range(50)))

    def test_structures_are_kept(self):
        Point = collections.namedtuple("Point", "x y")

        class Nested:
            def __len__(self):
                return 4

            def __getitem__(self, i):
                return {"a": (i, i / 2), "b": [f"s{i}", b"c"], "c": Point(gd.ones(2) * i, i % 2 == 0),
                        "d": array.array("f", [i, 1]) if False else gd.tensor([i], dtype=gd.uint8)}

        for workers in (0, 2):
            batch = next(iter(DataLoader(Nested(), batch_size=3, num_workers=workers)))
            self.assertEqual(batch["a"][0].dtype, gd.int64)
            self.assertEqual(batch["a"][1].dtype, gd.float32)
            self.assertEqual((plain(batch["a"]), batch["b"]), (([0, 1, 2], [0, 0.5, 1]), [["s0", "s1", "s2"], [b"c"] * 3]))
            self.assertIsInstance(batch["c"], Point)
            self.assertEqual((batch["c"].y.dtype, plain(batch["c"].x)), (gd.bool, [[0, 0], [1, 1], [2, 2]]))
            self.assertEqual((batch["d"].dtype, batch["d"].shape), (gd.uint8, (3, 1)))

    def test_more_tensors_than_the_library_takes(self):
        class Wide:
            def __len__(self):
                return 4

            def __getitem__(self, i):
                return [gd.tensor(i * 100 + k) for k in range(40)]

        for workers in (0, 2):
            batch = next(iter(DataLoader(Wide(), batch_size=2, num_workers=workers)))
            self.assertEqual(plain(batch), [[k, 100 + k] for k in range(40)])

    @unittest.skipIf(np is None, "needs NumPy")
    def test_numpy_and_pil(self):
        class Arrays:
            def __len__(self):
                return 3

            def __getitem__(self, i):
                image = Image.new("RGB", (5, 4), (i, 0, 9)) if Image else np.zeros((3, 4, 5), np.uint8)
                return np.full((2, 2), i, dtype=np.float64), np.int64(i), np.float32(i), image, np.float64(i), np.bool_(i), np.str_("a")

        a, b, c, d, e, f, g = next(iter(DataLoader(Arrays(), batch_size=3)))
        self.assertEqual((a.dtype, a.shape, b.dtype, c.dtype, d.shape), (gd.float64, (3, 2, 2), gd.int64, gd.float32, (3, 3, 4, 5)))
        self.assertEqual((plain(c), e.dtype, f.dtype, g), ([0, 1, 2], gd.float64, gd.bool, ["a"] * 3))

    def test_a_collate_function_and_its_numbers(self):
        def collate(samples):
            return {"n": len(samples), "x": gd.stack([x for x, _ in samples]), "mask": [gd.zeros(1)]}

        for data in (Numbers(7), Digits(7)):
            for workers in (0, 2):
                batches = list(DataLoader(data, batch_size=4, collate_fn=collate, num_workers=workers))
                self.assertEqual([b["n"] for b in batches], [4, 3])
                self.assertEqual(batches[1]["x"].shape[0], 3)

    def test_samples_instead_of_batches(self):
        got = list(DataLoader(Numbers(3), batch_size=None, num_workers=2))
        self.assertEqual([(x.shape, i) for x, i in got], [((2,), 0), ((2,), 1), ((2,), 2)])

    def test_padding(self):
        class Lines:
            def __len__(self):
                return 4

            def __getitem__(self, i):
                return gd.ones(i + 1), i

        x, _ = next(iter(DataLoader(Lines(), batch_size=3, pad=True, pad_value=-1)))
        self.assertEqual(plain(x), [[1, -1, -1], [1, 1, -1], [1, 1, 1]])
        with self.assertRaisesRegex(ValueError, "pad=True"):
            next(iter(DataLoader(Lines(), batch_size=3)))

    def test_streams(self):
        class Stream(IterableDataset):
            def __iter__(self):
                return ((gd.tensor(i), str(i)) for i in range(7))

        for workers in (0, 2):
            batches = list(DataLoader(Stream(), batch_size=3, num_workers=workers))
            self.assertEqual([plain(b) for b in batches], [([0, 1, 2], ["0", "1", "2"]), ([3, 4, 5], ["3", "4", "5"]), ([6], ["6"])])
        self.assertEqual(len(list(DataLoader(Stream(), batch_size=3, drop_last=True))), 2)
        with self.assertRaisesRegex(ValueError, "stream"):
            DataLoader(Stream(), shuffle=True)

    def test_threads_have_numbers_and_keep_their_state(self):
        local, seen, started = threading.local(), set(), []

        class Watched:
            def __len__(self):
                return 64

            def __getitem__(self, i):
                local.count = getattr(local, "count", 0) + 1
                info = gd.data.get_worker_info()
                seen.add((info.id, info.num_workers, threading.get_ident()))
                time.sleep(0.0005)
                return local.count

        counts = [c for b in DataLoader(Watched(), batch_size=2, num_workers=2, worker_init_fn=started.append)
                  for c in b.tolist()]
        self.assertEqual((sorted(started), len(seen)), ([0, 1], 2))
        self.assertGreater(max(counts), 8)  # a threading.local outlives the batch
        self.assertIsNone(gd.data.get_worker_info())

    def test_bad_arguments_say_what_would_fit(self):
        for arguments, what in (({"batch_size": 0}, "batch_size"), ({"num_workers": -1}, "num_workers"),
                                ({"shuffle": True, "sampler": [1]}, "sampler"), ({"processes": True}, "num_workers"),
                                ({"batch_sampler": [[1]], "drop_last": True}, "batch_sampler"),
                                ({"pad": True, "collate_fn": list}, "collate_fn"), ({"timeout": -1}, "timeout")):
            with self.assertRaisesRegex(ValueError, what):
                DataLoader(Numbers(3), **arguments)
        with self.assertRaisesRegex(TypeError, "__len__"):
            DataLoader(3)


class Samplers(unittest.TestCase):
    def test_each_kind(self):
        data = Numbers(60)
        cases = {
            "sequential": (gd.data.SequentialSampler(data), lambda s: s == list(range(60))),
            "random": (RandomSampler(data), lambda s: sorted(s) == list(range(60))),
            "more": (RandomSampler(data, num_samples=70), lambda s: len(s) == 70 and set(s) == set(range(60))),
            "with replacement": (RandomSampler(data, replacement=True, num_samples=90), lambda s: len(s) == 90),
            "subset": (gd.data.SubsetRandomSampler([3, 5, 7]), lambda s: sorted(s) == [3, 5, 7]),
            "weighted": (gd.data.WeightedRandomSampler([1.0] * 5 + [0.0] * 55, 40), lambda s: len(s) == 40 and max(s) < 5),
            "stratified": (gd.data.StratifiedSampler([i % 2 for i in range(60)]), lambda s: sorted(s) == list(range(60))),
            "bucketed": (gd.data.BucketedSampler(list(range(60)), pool=2), lambda s: sorted(s) == list(range(60))),
            "distributed": (gd.data.DistributedSampler(data, 4, 1), lambda s: len(s) == 15 == len(set(s))),
            "own": ([5, 4, 3], lambda s: s == [5, 4, 3]),
        }
        for name, (sampler, fits) in cases.items():
            with self.subTest(name):
                orders = [numbers(DataLoader(data, 8, sampler=sampler, num_workers=w, seed=1)) for w in (0, 3)]
                self.assertEqual(*orders)
                self.assertTrue(fits(orders[0]), orders[0])
                self.assertEqual(len(DataLoader(data, 8, sampler=sampler)), -(-len(orders[0]) // 8))
                self.assertEqual(len(list(sampler)), len(orders[0]))

    def test_batch_samplers(self):
        data = Numbers(20)
        given = [[1, 2], [3], [4, 5, 6]]
        for workers in (0, 2):
            loader = DataLoader(data, batch_sampler=given, num_workers=workers)
            self.assertEqual(([b[1].tolist() for b in loader], len(loader)), (given, 3))
            shuffled = DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 6, drop_last=True), num_workers=workers, seed=3)
            epochs = [[b[1].tolist() for b in shuffled] for _ in range(2)]
            self.assertEqual([len(b) for b in epochs[0]], [6, 6, 6])
            self.assertNotEqual(*epochs)
        # a sample's random numbers do not depend on the kind of batches
        rows = {int(i): x.tolist() for x, i in DataLoader(data, batch_size=None, seed=4)}
        for x, i in DataLoader(data, batch_sampler=given, seed=4):
            self.assertEqual(x.tolist(), [rows[k] for k in i.tolist()])

    def test_a_sampler_may_give_another_number_than_its_length(self):
        class Lies:
            def __init__(self, says, gives):
                self.says, self.gives = says, gives

            def __len__(self):
                return self.says

            def __iter__(self):
                return iter(range(self.gives))

        for says, gives in ((10, 7), (5, 12), (3, 0)):
            for workers in (0, 2):
                got = numbers(DataLoader(Numbers(20), 4, sampler=Lies(says, gives), num_workers=workers))
                self.assertEqual(got, list(range(gives)))

    def test_wrong_numbers_and_failures_of_a_sampler(self):
        for workers in (0, 2):
            with self.assertRaisesRegex(IndexError, "sample 99"):
                list(DataLoader(Numbers(20), 4, sampler=[1, 2, 99], num_workers=workers))
        def broken():
            yield 1
            raise ValueError("no more")
        class Broken:
            __len__ = lambda self: 4
            __iter__ = lambda self: broken()
        with self.assertRaisesRegex(ValueError, "no more"):
            list(DataLoader(Numbers(20), 4, sampler=Broken(), num_workers=2))


class Positions(unittest.TestCase):
    def test_an_epoch_continues_where_it_was_saved(self):
        orders = {"shuffle": lambda d: {"shuffle": True}, "sampler": lambda d: {"sampler": RandomSampler(d)},
                  "batches": lambda d: {"batch_sampler": BatchSampler(RandomSampler(d), 3), "batch_size": 1}}
        for name, order in orders.items():
            for workers, data in ((0, Numbers(31)), (3, Numbers(31)), (2, Digits(31))):
                with self.subTest(name, workers=workers):
                    make = lambda seed: DataLoader(data, **{"batch_size": 3, "num_workers": workers, "seed": seed, **order(data)})
                    loader = make(5)
                    rest, state = [], None
                    epoch(loader)
                    for i, batch in enumerate(loader):
                        if i == 4:
                            state = pickle.loads(pickle.dumps(loader.state_dict()))
                        elif i > 4:
                            rest.append(plain(batch))
                    after = epoch(loader)
                    resumed = make(99)
                    resumed.load_state_dict(state)
                    self.assertEqual(resumed.state_dict(), state)
                    self.assertEqual(epoch(resumed), rest)
                    self.assertEqual(epoch(resumed), after)

    def test_a_sampler_that_cannot_repeat_itself_resumes_too(self):
        import random

        class Own:
            def __len__(self):
                return 20

            def __iter__(self):
                return iter(random.sample(range(20), 20))

        loader = DataLoader(Numbers(20), 3, sampler=Own())
        it = iter(loader)
        next(it), next(it)
        state = loader.state_dict()
        rest = [plain(b) for b in it]
        other = DataLoader(Numbers(20), 3, sampler=Own())
        other.load_state_dict(state)
        self.assertEqual([b[1] for b in epoch(other)], [b[1] for b in rest])

    def test_a_state_of_another_loader_is_refused(self):
        state = DataLoader(Numbers(20), 3).state_dict()
        with self.assertRaisesRegex(RuntimeError, "samples = 21"):
            DataLoader(Numbers(21), 3).load_state_dict(state)
        with self.assertRaisesRegex(RuntimeError, "batch_size = 4"):
            DataLoader(Numbers(20), 4).load_state_dict(state)

    def test_an_epoch_that_was_left_is_not_continued(self):
        loader = DataLoader(Numbers(40), 4, shuffle=True, seed=2, num_workers=2)
        expected = [epoch(DataLoader(Numbers(40), 4, shuffle=True, seed=2))]
        for _ in loader:
            break
        again = epoch(loader)
        self.assertEqual(sorted(i for b in again for i in b[1]), list(range(40)))
        self.assertNotEqual(again, expected[0])
        self.assertEqual(loader.state_dict()["epoch"], 2)

    def test_two_iterators_at_once(self):
        loader = DataLoader(Numbers(24), 4, shuffle=True, num_workers=2, seed=1)
        pairs = [(a[1].tolist(), b[1].tolist()) for a, b in zip(loader, loader)]
        for side in zip(*pairs):
            self.assertEqual(sorted(itertools.chain(*side)), list(range(24)))
        self.assertNotEqual(*zip(*pairs))
        self.assertEqual(len(epoch(loader)), 6)
        one = iter(loader)
        next(one)
        for inner in loader:
            pass
        self.assertEqual((len(one), len(list(one))), (5, 5))

    def test_a_dataset_may_change_its_length_between_epochs(self):
        data = Numbers(10)
        for workers in (0, 2):
            data.count = 10
            loader = DataLoader(data, 4, num_workers=workers)
            self.assertEqual((numbers(loader), len(loader)), (list(range(10)), 3))
            data.count = 13
            self.assertEqual((len(loader), numbers(loader)), (4, list(range(13))))
            if workers == 0:  # workers may have read the samples already
                it = iter(loader)
                next(it)
                data.count = 2
                with self.assertRaisesRegex(IndexError, "no number"):
                    list(it)
            data.count = 2
            self.assertEqual(numbers(loader), [0, 1])


class Library(unittest.TestCase):
    """The library reads a loader without its iterator, as fit does."""

    def read(self, loader):
        batches = []
        while (batch := _core._loader_next(loader)) is not None:
            batches.append(plain(batch))
        return batches

    def test_epochs_and_orders_are_the_same(self):
        data = Numbers(21)
        for arguments in ({"shuffle": True}, {"sampler": RandomSampler(data)}, {"batch_size": 1, "batch_sampler": BatchSampler(RandomSampler(data), 4)},
                          {"shuffle": True, "processes": True}, {"sampler": [3, 2, 1]}):
            loaders = [DataLoader(data, **{"batch_size": 4, "num_workers": 2, "seed": 6, **arguments}) for _ in range(2)]
            for _ in range(3):
                self.assertEqual(self.read(loaders[0]), epoch(loaders[1]))
            self.assertEqual(_core._loader_tell(loaders[0]), (3, 0))
            for loader in loaders:
                loader.close()

    def test_nested_samples_are_flat_in_their_order(self):
        data = TensorDataset(gd.arange(4), gd.arange(4) * 2).map(lambda s: {"in": [s[0], "text"], "out": s[1]})
        self.assertEqual(self.read(DataLoader(data, 2)), [([0, 1], [0, 2]), ([2, 3], [4, 6])])

    def test_an_exception_is_that_of_the_dataset(self):
        with self.assertRaisesRegex(KeyError, "number 5"):
            self.read(DataLoader(Numbers(12, fails={5}), 4, num_workers=2))

    def test_a_sampler_with_another_length_is_an_error(self):
        class Lies(list):
            __len__ = lambda self: 9

        with self.assertRaisesRegex(IndexError, "gave 2 samples"):
            self.read(DataLoader(Numbers(12), 4, sampler=Lies([1, 2])))


class Failures(unittest.TestCase):
    def test_an_exception_is_raised_here_with_its_traceback_and_names_the_sample(self):
        import traceback

        for workers in (0, 1, 4):
            loader = DataLoader(Numbers(40, fails={17}), 4, num_workers=workers)
            got, it = [], iter(loader)
            text = ""
            try:
                for x, i in it:
                    got += i.tolist()
            except KeyError:
                text = traceback.format_exc()
            self.assertEqual(got, list(range(16)))
            self.assertIn("sample 17 of Numbers", text)
            self.assertIn('raise KeyError(f"number {i} is missing")', text)
            self.assertEqual(next(it)[1].tolist(), [20, 21, 22, 23])  # the batch after it

    def test_every_sample_failing_is_one_exception_after_the_other(self):
        loader = DataLoader(Numbers(100, fails=set(range(100))), 2, num_workers=4)
        it = iter(loader)
        for k in range(50):
            with self.assertRaisesRegex(KeyError, f"number {2 * k} is missing"):
                next(it)
        self.assertEqual(list(it), [])

    def test_odd_failures(self):
        class Odd(Numbers):
            def __getitem__(self, i):
                raise StopIteration

        with self.assertRaisesRegex(RuntimeError, "StopIteration"):
            list(DataLoader(Odd(4), 2, num_workers=2))

        class Quits(Numbers):
            def __getitem__(self, i):
                sys.exit(3)

        with self.assertRaises(SystemExit):
            list(DataLoader(Quits(4), 2, num_workers=2))
        for value, what in ((object(), "object"), (None, "NoneType")):
            class Strange(Numbers):
                def __getitem__(self, i):
                    return value

            with self.assertRaisesRegex(TypeError, what):
                list(DataLoader(Strange(4), 2))
        for samples, what in (([(1, 2), (1,)], "structures"), ([{"a": 1}, {"b": 1}], "keys"),
                              ([gd.ones(2), gd.ones(3)], "do not fit"), ([gd.ones(2), gd.arange(2)], "do not fit")):
            with self.assertRaisesRegex((TypeError, ValueError), what):
                gd.data.default_collate(samples)

    def test_a_length_that_lies(self):
        class Longer(Numbers):
            def __len__(self):
                return 12

        for workers in (0, 2):
            with self.assertRaisesRegex(IndexError, "no number 8"):
                list(DataLoader(Longer(8), 4, num_workers=workers))
        for length, error in ((-1, ValueError), ("a", TypeError), (2**70, OverflowError)):
            class Bad(Numbers):
                def __len__(self):
                    return length

            with self.assertRaises(error):
                DataLoader(Bad(3), 2)

    def test_a_loader_that_waits_for_the_gil_says_so_once(self):
        class Slow(Numbers):
            def __getitem__(self, i):
                n = 0
                for k in range(40000):
                    n += k
                return i

        logs = []
        handler = logging.Handler()
        handler.emit = lambda record: logs.append(record.getMessage())
        logger = logging.getLogger("gradus")
        logger.addHandler(handler)
        logger.propagate, before = False, logger.propagate
        began, cpu = time.monotonic(), time.process_time()
        try:
            loader = DataLoader(Slow(2000), 4, num_workers=4)
            while not logs and time.monotonic() < began + 10:
                for _ in loader:
                    if logs or time.monotonic() > began + 10:
                        break
            share = (time.process_time() - cpu) / (time.monotonic() - began)
            for i, _ in enumerate(loader):
                if i == 30:
                    break
        finally:
            logger.propagate = before
            logger.removeHandler(handler)
        if not logs and share < 0.5:
            self.skipTest("the machine is busy with other work")
        self.assertEqual(len(logs), 1)
        self.assertIn("processes=True", logs[0])
        self.assertIn("Slow", logs[0])

    def test_a_loader_that_waits_for_something_else_says_nothing(self):
        with self.assertNoLogs("gradus", "WARNING"):
            list(DataLoader(Numbers(800, waits=0.002), 4, num_workers=2))


class Ends(unittest.TestCase):
    def settle(self):
        for _ in range(3):
            gc.collect()
        return _core._live_objects(), threading.active_count(), len(os.listdir("/proc/self/task"))

    def test_a_thousand_loaders_that_were_left_early_leave_nothing(self):
        def leave(n, data):
            for k in range(n):
                it = iter(DataLoader(data, 4, shuffle=True, num_workers=1 + k % 3))
                next(it)
                if k % 2:
                    del it

        for data in (Numbers(64), Digits(64), Numbers(64, fails={9, 30, 31, 50})):
            def quietly(n):
                for _ in range(n):
                    try:
                        leave(1, data)
                    except KeyError:
                        pass

            quietly(5)
            before = self.settle()
            memory = resident()
            quietly(334)
            self.assertEqual(self.settle(), before)
            if "san" not in os.environ.get("LD_PRELOAD", ""):  # sanitizers keep freed memory for a while
                self.assertLess(resident() - memory, 8 << 20)

    def test_a_loader_frees_its_dataset(self):
        data = Numbers(20)
        gone = weakref.ref(data)
        loader = DataLoader(data, 4, num_workers=2, collate_fn=lambda s: len(s))
        list(loader)
        it = iter(loader)
        next(it)
        del loader, it, data
        gc.collect()
        self.assertIsNone(gone())

    def test_garbage_with_a_loader_is_collected_by_a_worker(self):
        """A worker that collects garbage may find its own loader in it."""
        class Holder:
            pass

        class Collects(Numbers):
            def __getitem__(self, i):
                gc.collect()
                return i

        for _ in range(8):
            holder = Holder()
            holder.me, holder.loader = holder, DataLoader(Collects(16), 2, num_workers=2)
            holder.it = iter(holder.loader)
            next(holder.it)
            del holder
            list(DataLoader(Collects(8), 2, num_workers=2))
        live = self.settle()
        list(DataLoader(Numbers(8), 2))
        self.assertEqual(self.settle()[0], live[0])

    def test_a_fork_continues_in_both_processes(self):
        loader = DataLoader(Numbers(40), 4, num_workers=2, shuffle=True, seed=3)
        expected = epoch(DataLoader(Numbers(40), 4, shuffle=True, seed=3))
        it = iter(loader)
        first = [plain(next(it)) for _ in range(3)]
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if first + [plain(b) for b in it] == expected else 2
            finally:
                os._exit(status)
        self.assertEqual(first + [plain(b) for b in it], expected)
        end = time.monotonic() + 20
        while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
            time.sleep(0.01)
        if done == (0, 0):
            os.kill(child, 9)
            os.waitpid(child, 0)
        self.assertEqual(done[1], 0)

    def test_several_threads_train_at_once(self):
        old = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            expected, results = epoch(DataLoader(Numbers(60), 4, shuffle=True, seed=1)), []

            def train():
                results.append(epoch(DataLoader(Numbers(60), 4, shuffle=True, seed=1, num_workers=2)))

            threads = [threading.Thread(target=train) for _ in range(6)]
            for t in threads:
                t.start()
            for t in threads:
                t.join(30)
            self.assertEqual(results, [expected] * 6)
        finally:
            sys.setswitchinterval(old)

    def test_a_program_ends_while_workers_run(self):
        import subprocess

        program = ("import gradus as gd, time\n"
                   "class D:\n"
                   "    def __len__(self): return 1000\n"
                   "    def __getitem__(self, i): time.sleep(0.01); return i\n"
                   "it = iter(gd.data.DataLoader(D(), 4, num_workers=3))\n"
                   "print(next(it).tolist())\n")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "[0, 1, 2, 3]\n", ""))


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class TorchNames(unittest.TestCase):
    def test_programs_that_move_find_the_names(self):
        from gradus.torch.utils import data
        import gradus.torch as torch

        self.assertIs(torch.utils.data.DataLoader, data.DataLoader)
        loader = data.DataLoader(data.TensorDataset(torch.ones(6, 2), torch.zeros(6)), batch_size=4, shuffle=True,
                                 num_workers=2, pin_memory=True, drop_last=True, persistent_workers=True)
        self.assertEqual([x.shape for x, y in loader], [(4, 2)])


if __name__ == "__main__":
    unittest.main()
