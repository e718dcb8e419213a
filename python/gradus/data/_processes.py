"""Worker processes, for datasets whose samples are Python's work.

Each worker of the library's loader, a thread, hands a batch to a process and waits without the GIL. The process makes the
batch, writes its tensors into shared memory, and sends where they are; the tensors of the batch are that memory. When the
last of them is freed, the process uses the memory again.
"""
from __future__ import annotations

import _thread
import os
import pickle
import time
import traceback
from collections import deque
from typing import Any, Callable, NamedTuple

from gradus import _core
from gradus._core import Tensor
from gradus.data._source import Fetcher, Source, Stopped, set_worker

_ALIGN = 64
_SPARE = 4  # free segments that a process keeps


class _Batch(NamedTuple):
    """The answer to a request: the tensors are in a segment at these places."""
    segment: int  # -1: there are no tensors
    size: int
    is_new: bool  # its file descriptor follows
    dropped: list[int]  # segments that the process has freed
    places: list[tuple[int, str, tuple[int, ...]]]
    structure: Any


class RemoteTraceback(Exception):
    """The traceback of an exception in a worker process, as its cause."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return "in a worker process:\n\n" + self.text


# --- in the worker process ----------------------------------------------------------------------------------

class _Memory:
    """The segments of a process."""

    def __init__(self) -> None:
        self.segments: dict[int, tuple[Any, int]] = {}
        self.free: list[int] = []
        self.next = 0

    def take(self, size: int) -> tuple[int, int | None]:
        """A segment of at least this size, and its file descriptor if it is new."""
        fitting = [n for n in self.free if self.segments[n][1] >= size]
        if fitting:
            number = min(fitting, key=lambda n: self.segments[n][1])
            self.free.remove(number)
            return number, None
        size = -(-size // 4096) * 4096
        segment, fd = _core._segment_new(size)
        number, self.next = self.next, self.next + 1
        self.segments[number] = segment, size
        return number, fd

    def drop_spare(self) -> list[int]:
        """Frees segments that were not needed for a while."""
        dropped, self.free = self.free[:-_SPARE], self.free[-_SPARE:]
        for number in dropped:
            del self.segments[number]
        return dropped


def _write(memory: _Memory, tensors: list[Tensor]) -> tuple[int, int | None, list[tuple[int, str, tuple[int, ...]]]]:
    places, end = [], 0
    for i, t in enumerate(tensors):
        if t.device.type != "cpu":
            t = tensors[i] = t.cpu()
        places.append((end, str(t.dtype), tuple(t.shape)))
        end += -(-t.size * t.dtype.itemsize // _ALIGN) * _ALIGN
    number, fd = memory.take(max(end, 1)) if tensors else (-1, None)
    for t, (offset, _, _) in zip(tensors, places):
        _core._segment_write(memory.segments[number][0], offset, t)
    return number, fd, places


def _failure(failure: BaseException) -> bytes:
    """An exception and its traceback, as bytes; one that cannot be pickled as its text."""
    text = "".join(traceback.format_exception(failure)).rstrip()
    failure.__cause__ = failure.__context__ = None
    try:
        whole = pickle.dumps(("failure", failure, text))
        pickle.loads(whole)  # not every exception comes back
        return whole
    except Exception:
        return pickle.dumps(("failure", RuntimeError(f"{type(failure).__name__}: {failure}"), text))


def run_worker(connection: Any, payload: bytes, number: int) -> None:
    """The main function of a worker process."""
    import signal
    from multiprocessing import reduction

    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that trains, which ends this process
    _core.set_num_threads(1)
    memory = _Memory()
    fetcher = None
    try:
        fetcher, init = pickle.loads(payload)
        set_worker(number, fetcher, init)
        connection.send_bytes(pickle.dumps(("ready",)))
    except BaseException as failure:
        connection.send_bytes(_failure(failure))
    try:
        while fetcher is not None:
            numbers, key, free = pickle.loads(connection.recv_bytes())
            memory.free += free
            try:
                tensors, structure = fetcher.fetch(numbers, key)
                segment, fd, places = _write(memory, tensors)
                size = memory.segments[segment][1] if tensors else 0
                answer = pickle.dumps(("batch", _Batch(segment, size, fd is not None, memory.drop_spare(), places, structure)))
            except BaseException as failure:
                fd, answer = None, _failure(failure)
            connection.send_bytes(answer)
            if fd is not None:
                reduction.send_handle(connection, fd, None)
                os.close(fd)
            tensors = structure = None
    except (EOFError, ConnectionError):
        pass  # the program that trains has ended the loader, or has ended
    os._exit(0)  # the interpreter's own end takes a while


# --- in the program that trains -----------------------------------------------------------------------------

class _Process:
    """A worker process and its segments."""

    def __init__(self, context: Any, payload: bytes, number: int) -> None:
        self.number = number
        self.connection, theirs = context.Pipe(duplex=True)
        try:
            self.process = context.Process(target=run_worker, args=(theirs, payload, number), daemon=True,
                                           name=f"gradus-loader-{number}")
            self.process.start()
        finally:
            theirs.close()
        self.segments: dict[int, Any] = {}
        self.given: set[int] = set()  # that the process must not use
        self.awaits = "ready"  # a message that nobody has received: "ready", "batch" or none

    def fail(self, what: str) -> Exception:
        self.process.join(1)
        code = self.process.exitcode
        how = "has ended"
        if code is not None and code < 0:
            import signal

            how = f"was killed by {signal.Signals(-code).name}" + (", as the system does when memory runs out" if code == -9 else "")
        elif code:
            how = f"has ended with exit status {code}"
        return _core.StateError(f"worker process {self.number} (pid {self.process.pid}) of the loader {how} {what}")

    def receive(self, source: Source, timeout: float, what: str) -> Any:
        """The next message. An exception if the process ends, at once, or if the loader does."""
        from multiprocessing import connection as connections

        waited = 0.0
        while True:
            ready = connections.wait([self.connection, self.process.sentinel], 0.1)
            if self.connection in ready:
                try:
                    message = pickle.loads(self.connection.recv_bytes())
                except (EOFError, ConnectionError):
                    raise self.fail(what) from None
                self.awaits = ""
                if message[0] == "batch":
                    self.take_segments(message[1])
                return message
            if ready:
                raise self.fail(what)
            waited += 0.1
            if source.stopping:
                raise Stopped
            if timeout and waited >= timeout:
                raise _core.StateError(f"worker process {self.number} of the loader has sent nothing for {timeout} s, "
                                       f"the loader's timeout, {what}")

    def take_segments(self, batch: _Batch) -> None:
        if batch.is_new:
            from multiprocessing import reduction

            self.segments[batch.segment] = _core._segment_open(reduction.recv_handle(self.connection), batch.size)
        for number in batch.dropped:
            self.segments.pop(number, None)
        if batch.segment >= 0:
            self.given.add(batch.segment)

    def request(self, source: Source, timeout: float, numbers: list[int], key: int) -> tuple[list[Tensor], Any]:
        """A batch."""
        what = f"while it made the samples {', '.join(map(str, numbers[:8]))}{', ...' if len(numbers) > 8 else ''}"
        if self.awaits:
            self.expect_ready(source, timeout)
        free = [n for n in self.given if _core._segment_is_free(self.segments[n])]
        self.given.difference_update(free)
        try:
            self.connection.send_bytes(pickle.dumps((numbers, key, free)))
        except ConnectionError:
            raise self.fail(what) from None
        self.awaits = "batch"
        kind, *answer = self.receive(source, timeout, what)
        if kind == "failure":
            raise_remote(*answer)
        batch: _Batch = answer[0]
        if batch.segment < 0:
            return [], batch.structure
        segment = self.segments[batch.segment]
        return [_core._segment_tensor(segment, offset, dtype, shape) for offset, dtype, shape in batch.places], batch.structure

    def expect_ready(self, source: Source, timeout: float) -> None:
        """Waits until the process has its dataset, or has made a batch that a loader left behind."""
        starts = self.awaits == "ready"
        kind, *answer = self.receive(source, timeout, "while it started; a script that makes such a loader does it under "
                                     "`if __name__ == \"__main__\":`" if starts else "")
        if kind == "failure" and starts:
            answer[0].add_note("This was in a worker process, while it received the dataset. What a process gets must be defined "
                               "in a module that it can import; threads (processes=False) have no such limit.")
            raise_remote(*answer)

    def end(self) -> None:
        self.connection.close()  # an idle process ends
        if self.awaits:
            self.process.terminate()


def raise_remote(failure: BaseException, text: str) -> None:
    """Raises an exception of a worker process here."""
    raise failure from RemoteTraceback(text)


class Pool:
    """The processes of a loader. They start with the first batch."""

    def __init__(self, fetcher: Fetcher, count: int, timeout: float, init: Callable[[int], Any] | None, context: Any,
                 persistent: bool) -> None:
        self.fetcher, self.count, self.timeout, self.init, self.context = fetcher, count, timeout, init, context
        self.processes: list[_Process] = []
        self._free: deque[_Process] = deque()
        self._lock = _thread.allocate_lock()
        self.owner = os.getpid()
        self.persistent = persistent  # they stay from epoch to epoch
        self._failed: str | None = None

    def is_ours(self) -> bool:
        """False in a child of fork(), which makes batches itself: the processes are those of its parent."""
        return self.owner == os.getpid()

    def start(self) -> None:
        """Starts the processes, also again after one of them has failed."""
        if self._failed:
            self.close()
        with self._lock:
            if self.processes:
                return
            import multiprocessing

            context = self.context
            if context is None or isinstance(context, str):
                context = multiprocessing.get_context(context or "forkserver")
            payload = self._payload()
            import signal

            # The library's threads block signals, and processes inherit that: multiprocessing's own needs SIGCHLD.
            mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
            try:
                for number in range(self.count):
                    self.processes.append(_Process(context, payload, number))
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._free.extend(self.processes)

    def _payload(self) -> bytes:
        from multiprocessing.reduction import ForkingPickler

        try:
            return bytes(ForkingPickler.dumps((self.fetcher, self.init)))
        except Exception as failure:
            raise TypeError(
                f"{type(self.fetcher.dataset).__name__} cannot be pickled, which worker processes need: {failure}. Use threads "
                "(processes=False), or define what it holds at the top level of a module") from failure

    def fetch(self, numbers: list[int], key: int, source: Source) -> tuple[list[Tensor], Any]:
        """A batch, made by a process that has nothing else to do."""
        if self._failed:
            raise _core.StateError(self._failed)
        self.start()
        process = self._take(source)
        try:
            return process.request(source, self.timeout, numbers, key)
        except _core.StateError as failure:
            if process.awaits:
                self._failed = str(failure)
            raise
        finally:
            self._free.append(process)

    def _take(self, source: Source) -> _Process:
        while True:
            if source.stopping:
                raise Stopped
            try:
                return self._free.popleft()
            except IndexError:  # two iterators at once share the processes
                time.sleep(0.001)

    def close(self) -> None:
        """Ends the processes."""
        processes, self.processes = self.processes, []
        self._free.clear()
        self._failed = None
        if not self.is_ours():
            return
        for p in processes:
            p.end()
        for p in processes:
            p.process.join(2)
            if p.process.exitcode is None:
                p.process.kill()
                p.process.join(2)
            try:
                p.process.close()
            except ValueError:
                pass  # it does not end even so; the system reports why

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            pass  # the interpreter ends

    def __reduce__(self) -> Any:
        raise TypeError("worker processes cannot be pickled")
