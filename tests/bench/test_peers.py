#!/usr/bin/env python3
"""test_peers.py - bench/versus_pytorch_cuda.py compares with every mode of PyTorch, unless it is told otherwise.

PyTorch is not needed: its modules are stand-ins.
"""

import contextlib
import io
import pathlib
import sys
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
for name in ("torch", "torch.nn", "torch.nn.functional"):
    sys.modules[name] = mock.MagicMock()
import versus_pytorch_cuda as versus


class Peers(unittest.TestCase):
    def test_all_modes_are_compared_by_default(self):
        self.assertEqual(versus.parse_arguments([]).peers, "torch,graph,compile,both")

    def test_the_figures_are_against_all_modes(self):
        self.assertEqual(versus.parse_arguments(["--record"]).peers, "torch,graph,compile,both")
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
            versus.parse_arguments(["--record", "--peers", "torch"])
        self.assertIn("leave out --peers", said.getvalue())

    def test_a_cpu_has_one_mode(self):
        self.assertEqual(versus.parse_arguments(["--torch-device", "cpu"]).peers, "torch")

    def test_an_unknown_mode_is_refused(self):
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
            versus.parse_arguments(["--peers", "torch,jax"])
        self.assertIn("there is no mode jax", said.getvalue())


if __name__ == "__main__":
    unittest.main()
