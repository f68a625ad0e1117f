"""Worker processes: a parent binds the sockets, and several children serve, each with its own event loop.

On a reload, new workers start beside the old ones, which drain when all of the new ones serve. If one of the new ones
cannot start, the others of them are ended, and the old ones go on.

parent ── binds, starts and restarts workers, forwards signals; serves nothing
  ├── worker 1 ─┐
  ├── worker 2 ─┼─ the same command line, sockets and keys
  ╰── worker N ─╯

Each worker has a channel of JSON lines to its parent: it reports that it serves, receives the request to end, and
exchanges metrics and updates of resources. If the channel closes, the parent has ended, and the worker shuts down.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import socket
from contextlib import suppress
from dataclasses import replace
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any

from bridge.hosting.child_process import child_command, require_inheritable_sockets
from bridge.hosting.process import exit_code_of, print_message, spelled_exit_code
from bridge.hosting.service_manager import service_manager
from bridge.signals import hangup_signals, has_terminal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from bridge.hosting.child_process import InheritedSockets

STATE_KEYS = "BRIDGE_STATE_KEYS"
MAX_LINE_BYTES = 64 * 1024 * 1024
"""Maximum bytes of a line of the channel; the metrics of a worker are one line."""

_BACK_OFF_SECONDS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_STEADY_SECONDS = 60.0
"""Seconds after which a worker's end does not count as a repeated failure."""
_ANSWER_SECONDS = 5.0
_MAX_UNREAD_BYTES = 1024 * 1024
"""Maximum bytes that a worker leaves unread; it gets no further updates of resources until it has read them."""


def run_workers(
    count: int,
    sockets: InheritedSockets,
    announce: Callable[[int, Mapping[str, str]], None],
    *,
    has_keys: bool,
    changes: Callable[[], AsyncIterator[object]] | None = None,
) -> int:
    """Run this command line in several children and restart those that end, until a signal.

    Args:
        count: Number of workers.
        sockets: Listening sockets.
        announce: Called when all workers serve, with the arguments of `WorkerChannel.opened`.
        changes: Returns changes of files that all workers are replaced after; None for none.
        has_keys: True if state keys are configured; otherwise a key is generated for all workers.

    Returns:
        The exit code; that of a worker that could not start, which has printed the reason.

    Raises:
        HostingError: The platform does not support it.
        KeyboardInterrupt: SIGINT ended them.
    """
    require_inheritable_sockets("--workers")
    workers = _Workers(count, sockets, announce, {} if has_keys else {STATE_KEYS: secrets.token_hex(32)}, changes)
    code = asyncio.run(workers.run())
    if workers.signalled == signal.SIGINT and code == 0:
        raise KeyboardInterrupt
    return code


class _Workers:
    def __init__(
        self,
        count: int,
        sockets: InheritedSockets,
        announce: Callable[[int, Mapping[str, str]], None],
        environment: dict[str, str],
        changes: Callable[[], AsyncIterator[object]] | None,
    ) -> None:
        self._changes = changes
        self._reloading: asyncio.Task[None] | None = None
        self._asked: list[tuple[_Worker, int]] = []  # who waits for its outcome, with the numbers of their requests
        self.signalled: int | None = None
        """The first signal."""
        self._count, self._sockets, self._announce, self._environment = count, sockets, announce, environment
        self._running: dict[int, _Worker] = {}
        """The workers by number; without those that start, or drain, during a reload."""
        self._following: dict[int, _Worker] = {}
        """Workers that a reload has started, until they are the running ones."""
        self._all: set[_Worker] = set()
        self._keeping = asyncio.TaskGroup()
        self._unopened, self._has_opened = set(range(1, count + 1)), False
        self._starting = asyncio.Event()  # set when a worker serves, or the shutdown begins
        self._ending = asyncio.Event()
        self._waking = asyncio.Event()
        """Ends the delays before restarts: at the end of the next reload, or for the shutdown."""
        self._code = 0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for ending in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(ending, self._signalled, ending)
        for hangup in hangup_signals():
            loop.add_signal_handler(hangup, self._hung_up if has_terminal() else self.reload)
        background = [loop.create_task(service_manager().watch()), loop.create_task(self._watch())]
        if self._changes is not None:
            background.append(loop.create_task(self._follow(self._changes())))
        # One worker starts first, so that an error in the command line is printed once.
        async with asyncio.TaskGroup() as self._keeping:
            self._keeping.create_task(self._keep(1))
            await self._starting.wait()
            if not self._ending.is_set():
                for number in range(2, self._count + 1):
                    self._keeping.create_task(self._keep(number))
        for task in background:
            task.cancel()
        return self._code

    async def _watch(self) -> None:
        """Kill workers whose event loops hang, if the service manager expects signs of life."""
        while (seconds := service_manager().watchdog_seconds) is not None:
            for worker in tuple(self._all):
                worker.check()
            await asyncio.sleep(seconds)

    async def _follow(self, changes: AsyncIterator[object]) -> None:
        async for _ in changes:
            self.reload()

    def reload(self, *asked: tuple[_Worker, int]) -> None:
        """Replace all workers; a reload that is under way is given up, and who waits for it gets the outcome of this.

        ``asked`` is the worker that asks for it, with the number of its request; none for a signal or a changed file.
        """
        self._asked += asked
        if self._ending.is_set() or self._unopened:
            print_message("not reloaded: the workers start or end; try again", "warning")
            self._answer_reloads("the workers start or end; try again")
            return
        if self._reloading is not None:
            self._reloading.cancel()
        self._reloading = self._keeping.create_task(self._replace_all())

    async def _replace_all(self) -> None:
        service_manager().reloading()
        started: list[_Worker] = []
        error: str | None = None
        try:
            print_message("reloading: starting new workers")
            while len(started) < self._count:
                started.append(await self._started(len(started) + 1, is_reload=True))
            if not await _all_open(started):
                error = "the changed configuration cannot be served; the previous workers go on"
        except OSError as failure:
            error = f"no further worker can be started ({failure}); the previous workers go on"
        except asyncio.CancelledError:  # another reload follows, or the end
            for worker in started:
                worker.tell({"end": signal.SIGTERM})
            raise
        if error is not None:
            for worker in started:
                worker.tell({"end": signal.SIGTERM})
        else:
            for worker in started:
                if (unused := self._following.pop(worker.number, None)) is not None:
                    unused.drain()  # of a reload just before
                self._following[worker.number] = worker
                self._running[worker.number].drain()
            self._waking.set()
            self._waking = asyncio.Event()
        done = "reloaded: the new workers serve, and the previous ones drain"
        print_message(error or done, "error" if error else "info")
        self._answer_reloads(error)
        service_manager().ready(error or "reloaded")

    def _answer_reloads(self, error: str | None) -> None:
        for worker, number in self._asked:
            worker.tell({"reloaded": error, "number": number})
        self._asked.clear()

    def _signalled(self, number: int) -> None:
        if self.signalled is not None:
            self._code = 128 + number
            for worker in self._all:
                worker.process.send_signal(number)
            return
        self.signalled = number
        self._end(number)

    def _hung_up(self) -> None:
        if self.signalled is None:
            self._signalled(signal.SIGTERM)

    def _end(self, number: int) -> None:
        self._ending.set()
        self._starting.set()
        self._waking.set()
        service_manager().stopping()
        for each in (*self._sockets.sockets, *self._sockets.admin_sockets):
            each.close()  # otherwise connections would wait here
        for worker in self._all:
            worker.tell({"end": number})

    async def _keep(self, number: int) -> None:
        """Run one worker and restart it when it ends, until the shutdown."""
        failures = 0
        while not self._ending.is_set():
            started_at = monotonic()
            worker = self._running[number] = await self._next(number)
            if (code := await worker.over) is None or number in self._following:
                failures = 0
                continue
            if self._ending.is_set():
                # A signal before its handlers are installed ends a worker immediately.
                if code not in {0, -signal.SIGTERM, -signal.SIGINT, 130}:
                    self._code = self._code or exit_code_of(code)
            elif not self._has_opened:
                self._code = exit_code_of(code)
                self._end(signal.SIGTERM)
            else:
                failures = 0 if monotonic() - started_at > _STEADY_SECONDS else failures
                delay_seconds = _BACK_OFF_SECONDS[min(failures, len(_BACK_OFF_SECONDS) - 1)]
                failures += 1
                delay = f" in {delay_seconds:g} seconds" if delay_seconds else ""
                print_message(f"worker {number} ended ({spelled_exit_code(code)}); restarting it{delay}", "warning")
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._waking.wait(), delay_seconds)
                failures = 0 if number in self._following else failures

    async def _next(self, number: int) -> _Worker:
        """Return the worker that a reload has started for a number, or start one."""
        started = None if number in self._following else await self._started(number)
        following = self._following.pop(number, started)  # a reload may have come meanwhile
        assert following is not None
        if started is not None and following is not started:
            started.drain()
        return following

    async def _started(self, number: int, *, is_reload: bool = False) -> _Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            inheritance = replace(self._sockets, channel=theirs, is_late=self._has_opened, is_reload=is_reload)
            command, environment = child_command(inheritance, self._environment)
            process = await asyncio.create_subprocess_exec(
                *command,
                env=environment,
                pass_fds=inheritance.descriptors,
                start_new_session=True,  # the parent forwards Ctrl-C
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        worker = _Worker(number, process, reader, writer)
        self._all.add(worker)
        self._keeping.create_task(self._attend(worker))
        if self._ending.is_set():
            worker.tell({"end": signal.SIGTERM})
        return worker

    async def _attend(self, worker: _Worker) -> None:
        try:
            await worker.attended(self)
        finally:
            self._all.discard(worker)

    def opened(self, number: int, processes: int, profiles: Mapping[str, str]) -> None:
        """Record that a worker serves; the other arguments are those of ``announce``."""
        self._has_opened = True
        self._starting.set()
        if self._unopened == {number}:
            self._announce(processes, profiles)
        self._unopened.discard(number)

    def share(self, sender: _Worker, uri: str) -> None:
        """Pass the update of a resource on to the other workers."""
        for worker in self._running.values():
            if worker is not sender and worker.has_opened:
                worker.tell_update(uri)

    async def answers(self, topic: str, question: Any) -> dict[str, Any]:
        """Return the answers of all workers that answer in time, by their numbers."""
        asked = {number: worker.ask(topic, question) for number, worker in self._running.items() if worker.has_opened}
        answers = await asyncio.gather(*asked.values())
        return {str(number): answer for number, answer in zip(asked, answers, strict=True) if answer is not None}


class _Worker:
    """The parent's view of a worker process."""

    def __init__(
        self,
        number: int,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.number, self.process = number, process
        self.has_opened = False
        self.opening: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """True once it serves; False if it has ended before."""
        self.over: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        """The exit code; None if it drains, because another one serves instead."""
        self._reader, self._writer = reader, writer
        self._numbers = count()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        """Questions that the worker has not answered, by number."""
        self._is_silent = False

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message; ignored if the worker has ended."""
        self._writer.write(json.dumps(message).encode() + b"\n")

    def check(self) -> None:
        """Kill the worker if its event loop has not run since the last check."""
        if self._is_silent:
            print_message(f"worker {self.number} does not respond; killing it", "error")
            self.process.kill()
        elif self.has_opened:
            self._is_silent = True
            self.tell({"give": "pulse"})

    def drain(self) -> None:
        """Drain, since another worker serves instead."""
        if not self.over.done():
            self.over.set_result(None)
        self.tell({"end": signal.SIGTERM})

    def tell_update(self, uri: str) -> None:
        """Send the update of a resource, unless the worker has stopped reading."""
        if self._writer.transport.get_write_buffer_size() <= _MAX_UNREAD_BYTES:
            self.tell({"updated": uri})

    async def ask(self, topic: str, question: Any) -> Any:
        """Ask the worker; None if it does not answer in time."""
        number = next(self._numbers)
        answered = self._asked[number] = asyncio.get_running_loop().create_future()
        self.tell({"ask": topic, "question": question, "number": number})
        try:
            return await asyncio.wait_for(answered, _ANSWER_SECONDS)
        except TimeoutError:
            return None
        finally:
            del self._asked[number]

    async def attended(self, workers: _Workers) -> None:
        """Read messages until the worker ends."""
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(self._listen(workers, tasks))
            code = await self.process.wait()
            listening.cancel()
        for answered in self._asked.values():
            if not answered.done():
                answered.set_result(None)
        self._writer.close()
        if not self.opening.done():
            self.opening.set_result(False)
        if not self.over.done():
            self.over.set_result(code)

    async def _listen(self, workers: _Workers, tasks: asyncio.TaskGroup) -> None:
        with suppress(ConnectionError):
            while line := await self._reader.readline():
                match json.loads(line):
                    case {"say": "opened", "processes": processes, "profiles": profiles}:
                        self.has_opened = True
                        self.opening.set_result(True)
                        workers.opened(self.number, processes, profiles)
                    case {"say": "pulse"}:
                        self._is_silent = False
                    case {"ask all": topic, "question": question}:
                        tasks.create_task(self._give_answers(workers, topic, question))
                    case {"updated": uri}:
                        workers.share(self, uri)
                    case {"reply": number, "answer": answer} if number in self._asked:
                        if not self._asked[number].done():
                            self._asked[number].set_result(answer)
                    case {"give": "reload", "number": number}:
                        workers.reload((self, number))

    async def _give_answers(self, workers: _Workers, topic: str, question: Any) -> None:
        self.tell({"replies": await workers.answers(topic, question)})


async def _all_open(workers: list[_Worker]) -> bool:
    """Wait until all workers serve; False as soon as one has ended before."""
    waiting = {worker.opening for worker in workers}
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not all(each.result() for each in done):
            return False
    return True
