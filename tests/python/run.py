"""Runs one file of tests for CTest: run.py FILE [NAME ...]. The last line counts; exit status 77: all tests were skipped.

Tests are unittest's, and a file needs only the standard library: what needs more skips itself and says why.
"""

import importlib.util
import os
import sys
import unittest


def load(path):
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # classes of the file can be pickled
    spec.loader.exec_module(module)
    return module


def main():
    sys.dont_write_bytecode = True  # here; what a test starts may cache the package in the build folder
    module = load(sys.argv[1])
    loader = unittest.TestLoader()
    suite = loader.loadTestsFromNames(sys.argv[2:], module) if sys.argv[2:] else loader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1).run(suite)
    bad = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    passed = max(0, result.testsRun - bad - len(result.skipped))  # a skipped file has run no test
    print(f"{passed} passed, {bad} failed, {len(result.skipped)} skipped")
    if bad:
        return 1
    return 0 if passed else 77


if __name__ == "__main__":
    sys.exit(main())
