#!/usr/bin/env python3
"""test_setup.py - tools/setup.sh and fetch_cuda.py: what is fetched is printed first, checked, and in one folder.

A server of this machine has a small package, whole or by ranges of bytes. Exit status 77: there is no pip.
"""

import base64
import functools
import hashlib
import http.server
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import threading
import unittest
import zipfile

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
WHEEL = "nvidia_toy-1.0-py3-none-any.whl"
FILES = {"nvidia/toy/include/toy.h": b"int toy;\n", "nvidia/toy/lib/libnvrtc.so.99": b"library" * 1000, "nvidia/toy/other.py": b""}


def make_wheel(folder, changed=(), unlisted=()):
    """A wheel; files in `changed` have other bytes than the list says, those in `unlisted` are not in it."""
    record = ""
    for name, data in FILES.items():
        checksum = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        if name not in unlisted:
            record += f"{name},sha256={checksum},{len(data)}\n"
    info = "nvidia_toy-1.0.dist-info"
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        for name, data in FILES.items():
            wheel.writestr(name, b"changed" if name in changed else data)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: nvidia-toy\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return hashlib.sha256((folder / WHEEL).read_bytes()).hexdigest()


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves files, also ranges of them."""

    ranges = True
    ranges_served = 0

    def log_message(self, *_):
        pass

    def end_headers(self):
        if Server.ranges:
            self.send_header("Accept-Ranges", "bytes")
        super().end_headers()

    def do_GET(self):
        wanted = self.headers.get("Range")
        if not wanted or not Server.ranges:
            return super().do_GET()
        first, last = map(int, wanted.removeprefix("bytes=").split("-"))
        data = pathlib.Path(self.translate_path(self.path)).read_bytes()[first : last + 1]
        Server.ranges_served += 1
        self.send_response(206)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Fetching(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.base = pathlib.Path(self.folder.name)
        self.into = self.base / "into"
        self.server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Server, directory=str(self.base)))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        Server.ranges, Server.ranges_served = True, 0

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()
        self.folder.cleanup()

    def fetch(self, checksum, local=False):
        """Fetches the package from the server, or from a page of links on the disk. Returns the status and the text."""
        (self.base / "index.html").write_text(f'<!DOCTYPE html><html><body><a href="{WHEEL}#sha256={checksum}">{WHEEL}</a></body></html>')
        page = self.base / "index.html" if local else f"http://127.0.0.1:{self.server.server_port}/index.html"
        keep = {name: value for name, value in os.environ.items() if not name.startswith("PIP_") and "proxy" not in name.lower()}
        with_pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(page), "PIP_NO_CACHE_DIR": "1"}
        run = subprocess.run([sys.executable, TOOLS / "fetch_cuda.py", self.into, "nvidia-toy~=1.0"], env=keep | with_pip,
                             text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return run.returncode, run.stdout

    def written(self):
        return sorted(str(path.relative_to(self.into)) for path in self.into.rglob("*") if path.is_file())

    def check_good(self, **how):
        status, text = self.fetch(make_wheel(self.base), **how)
        self.assertEqual((status, self.written()), (0, ["include/toy.h", "lib/libnvrtc.so.99"]), text)
        self.assertEqual((self.into / "include/toy.h").read_bytes(), FILES["nvidia/toy/include/toy.h"])

    def test_parts_of_a_good_wheel_are_read_by_ranges(self):
        self.check_good()
        self.assertGreater(Server.ranges_served, 0)

    def test_a_good_wheel_is_downloaded_whole_without_ranges(self):
        Server.ranges = False
        self.check_good()

    def test_a_good_wheel_on_the_disk_is_read(self):
        self.check_good(local=True)

    def check_bad(self, checksum=None, **how):
        made = make_wheel(self.base, **how)
        for ranges, local in ((True, False), (False, False), (False, True)):
            Server.ranges = ranges
            status, text = self.fetch(checksum or made, local)
            self.assertEqual(status, 1, text)
            self.assertIn("cannot be fetched", text)
            self.assertNotIn("lib/libnvrtc.so.99", self.written(), text)
            self.assertFalse([name for name in self.written() if "libnvrtc" in name], "a partial file is left")

    def test_a_file_that_differs_from_the_list_of_the_wheel_is_not_written(self):
        self.check_bad(changed=["nvidia/toy/lib/libnvrtc.so.99"])

    def test_a_file_that_is_not_in_the_list_of_the_wheel_is_not_written(self):
        self.check_bad(unlisted=["nvidia/toy/lib/libnvrtc.so.99"])

    def test_a_whole_wheel_that_differs_from_the_index_is_not_read(self):
        make_wheel(self.base)
        for local in (False, True):
            Server.ranges = False
            status, text = self.fetch("0" * 64, local)
            self.assertEqual((status, self.written()), (1, []), text)


class Folders(unittest.TestCase):
    """setup.sh with a compiler of a version that no machine has, and a Python that only says what it would run."""

    def run_setup(self, **variables):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("nvcc", 'echo "release 99.0, V99.0.1"'), ("python3", 'echo "python3 $*"')):
                path = pathlib.Path(folder, name)
                path.write_text(f"#!/bin/sh\n{text}\n")
                path.chmod(path.stat().st_mode | stat.S_IXUSR)
            env = {"PATH": f"{folder}:/usr/bin:/bin"} | variables
            return subprocess.run(["sh", TOOLS / "setup.sh", "cuda"], env=env, text=True, check=True, stdout=subprocess.PIPE).stdout

    def test_packages_are_printed_before_they_are_fetched(self):
        before, _, after = self.run_setup(HOME="/nowhere").partition("python3 /")
        self.assertIn("missing for CUDA:", before)
        self.assertIn("nvidia-cuda-nvrtc~=99.0.0", before)
        self.assertIn("to /nowhere/.cache/gradus/cuda", before)
        self.assertIn("fetch_cuda.py /nowhere/.cache/gradus/cuda", after)

    def test_a_python_of_others_without_headers_is_named_and_not_replaced(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("python3", "echo /nowhere"), ("apt-get", "exit 0")):
                path = pathlib.Path(folder, name)
                path.write_text(f"#!/bin/sh\n{text}\n")
                path.chmod(0o755)
            run = subprocess.run(["sh", TOOLS / "setup.sh", "test"], env={"PATH": f"{folder}:/usr/bin:/bin", "CUDA_HOME": "/nowhere"},
                                 text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
            self.assertIn(f"{folder}/python3 has no headers, so the Python module will not be built", run)
            self.assertNotIn("python3-dev", run)

    def test_without_a_home_folder_all_use_one_that_is_not_for_temporary_files(self):
        folder = subprocess.run(["sh", TOOLS / "cuda_folder.sh"], env={"PATH": "/usr/bin:/bin"}, text=True, check=True,
                                stdout=subprocess.PIPE).stdout.strip()
        self.assertEqual(folder, f"{TOOLS.parent}/.cache/gradus/cuda")
        for variables in ({}, {"HOME": ""}):
            self.assertIn(f"fetch_cuda.py {folder} ", self.run_setup(**variables))
        cmake = (TOOLS.parent / "cmake/cuda.cmake").read_text()
        self.assertIn("tools/cuda_folder.sh OUTPUT_VARIABLE CUDA_PACKAGES", cmake)
        self.assertNotIn("ENV{HOME}", cmake)

    def test_relative_folders_are_ignored_as_by_the_library(self):
        def folder(**variables):
            return subprocess.run(["sh", TOOLS / "cuda_folder.sh"], env={"PATH": "/usr/bin:/bin"} | variables, text=True, check=True,
                                  stdout=subprocess.PIPE).stdout.strip()
        self.assertEqual(folder(GRADUS_CUDA_PACKAGES="/a", XDG_CACHE_HOME="/b", HOME="/c"), "/a")
        self.assertEqual(folder(GRADUS_CUDA_PACKAGES="a", XDG_CACHE_HOME="/b", HOME="/c"), "/b/gradus/cuda")
        self.assertEqual(folder(GRADUS_CUDA_PACKAGES="a", XDG_CACHE_HOME="b", HOME="/c"), "/c/.cache/gradus/cuda")
        self.assertEqual(folder(GRADUS_CUDA_PACKAGES="./a", XDG_CACHE_HOME="../b", HOME="~"), f"{TOOLS.parent}/.cache/gradus/cuda")


if __name__ == "__main__":
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        sys.exit(77)
    unittest.main()
