"""Common mistakes and their messages: mistakes.txt has a program of one line and what Python prints for it. The messages name
the function, shapes and what would fit; `python test_mistakes.py --write` writes them again, to be read.

The traceback of a call ends in the program's line, or if the function is written in Python a few lines below."""
import os
import sys
import traceback
import unittest

import gradus as gd
import gradus.torch as torch

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mistakes.txt")


def read():
    """Pairs of a program and what it prints."""
    with open(PATH, encoding="utf-8") as file:
        lines = file.read().splitlines()
    lines = [line for line in lines if line and not line.startswith("#")]
    return [(code, lines[i + 1].strip() if i + 1 < len(lines) and lines[i + 1].startswith("    ") else None)
            for i, code in enumerate(lines) if not code.startswith("    ")]


def run(code):
    """What the program's exception prints, and how many calls below its line it was raised."""
    try:
        exec(compile(code, "program.py", "exec"), {"gd": gd, "torch": torch})
    except Exception as mistake:
        text = f"{type(mistake).__name__}: {mistake}".split(" (there is", 1)[0]  # the rest depends on the machine
        files = [frame.filename for frame in traceback.extract_tb(mistake.__traceback__)]
        return text, files[::-1].index("program.py")
    return "no exception", 0


class Mistakes(unittest.TestCase):
    def test_messages(self):
        rows = read()
        self.assertGreaterEqual(len(rows), 100)
        depths = []
        for code, expected in rows:
            with self.subTest(code):
                text, depth = run(code)
                self.assertEqual(text, expected)
                depths.append(depth)
        self.assertGreater(depths.count(0), 0.6 * len(rows))


if __name__ == "__main__":
    if "--write" not in sys.argv:
        unittest.main()
    with open(PATH, encoding="utf-8") as file:
        head = [line for line in file.read().splitlines() if line.startswith("#")]
    rows = [f"{code}\n    {run(code)[0]}" for code, _ in read()]
    with open(PATH, "w", encoding="utf-8") as file:
        file.write("\n".join(head + rows) + "\n")
