"""Process of a sandbox: interprets one script by pydantic-monty, and passes its calls of tools on.

`sandbox` starts it by path, without environment variables and without this package. Messages are lines of JSON:

    start ─>
          <─ call: a function was called; the script goes on until it needs the value
          <─ wait: it needs the value of one of these calls
    settle ─> values and errors        or        suspend ─> <─ snapshot, the end
          <─ value, or error: the end
"""

from __future__ import annotations

import json
import math
import sys
from base64 import b64decode, b64encode
from datetime import date, time
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_monty import FunctionSnapshot, Monty, MontySession, NameLookupSnapshot, ResourceLimits, SyncSnapshot

    Json = dict[str, Any]

_SPARE_SECONDS = 5
_SPARE_MEMORY_BYTES = 8 * 1024**3
"""Address space of the interpreter's own code and threads; its values have a limit of their own."""
_SUSPENSIONS_PER_CALL = 4
_OTHER_SUSPENSIONS = 1000


def _plain(value: Any) -> Any:
    """Return a value of the script as JSON data."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(_plain(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return [_plain(each) for each in sorted(value, key=repr)]
    attributes = getattr(value, "attributes", None)  # an object of a class of the script
    return _plain(attributes) if isinstance(attributes, dict) else _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, date | time):
        return value.isoformat()
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


class _Printed:
    """Collects the beginning of what the script prints."""

    def __init__(self, text: str, max_chars: int) -> None:
        self.text = text
        self._max_chars = max_chars

    def __call__(self, _: Literal["stdout", "stderr"], text: str) -> None:
        self.text += text[: max(0, self._max_chars - len(self.text))]


class _Interpreter:
    def __init__(self, start: Json, send: Callable[[Json], None], receive: Callable[[], Json]) -> None:
        self._start = start
        self._functions = frozenset(start["functions"])
        self._send = send
        self._receive = receive
        self._printed = _Printed(start["printed"], start["maxOutputChars"])

    def run(self) -> Json:
        """Run the script; return its outcome."""
        import pydantic_monty  # noqa: PLC0415 - its path comes first

        try:
            with pydantic_monty.Monty(max_processes=1) as pool, self._session(pool) as session:
                outcome = self._interpret(session)
        except pydantic_monty.MontyCrashedError as error:
            outcome = {"crash": str(error)}
        except pydantic_monty.MontyTypingError as error:
            outcome = {"error": error.display(), "began": False}
        except pydantic_monty.MontyError as error:
            display = getattr(error, "display", error.__str__)
            outcome = {"error": display()}
        return {**outcome, "printed": self._printed.text}

    def _session(self, pool: Monty) -> MontySession:
        seconds, calls = self._start["maxSeconds"], self._start["maxCalls"]
        limits: ResourceLimits = {
            "max_feed_duration_secs": seconds,
            "max_total_sleep_secs": seconds,
            "max_memory": self._start["maxMemoryBytes"],
            "max_suspensions": calls * _SUSPENSIONS_PER_CALL + _OTHER_SUSPENSIONS,
        }
        stubs = self._start["stubs"]
        return pool.checkout(
            script_name="script.py",
            limits=limits,
            type_check=stubs is not None,
            type_check_stubs=stubs,
            type_check_format="concise",
            os_policy={"sleep_system_max": math.inf},
        )

    def _interpret(self, session: MontySession) -> Json:
        from pydantic_monty import FunctionSnapshot, MontyComplete, NameLookupSnapshot  # noqa: PLC0415 - as above

        state: SyncSnapshot
        if "snapshot" in self._start:
            state = session.load_snapshot(b64decode(self._start["snapshot"]), print_callback=self._printed)
        else:
            state = session.feed_start(self._start["code"], print_callback=self._printed)
        while not isinstance(state, MontyComplete):
            if isinstance(state, FunctionSnapshot):
                state = self._call(state)
            elif isinstance(state, NameLookupSnapshot):
                state = self._look_up(state)
            else:
                self._send({"wait": list(state.pending_call_ids)})
                answer = self._receive()
                if "suspend" in answer:
                    return {"snapshot": b64encode(state.dump()).decode()}
                state = state.resume({each["id"]: each["outcome"] for each in answer["settle"]})
        return {"value": _plain(state.output)}

    def _call(self, state: FunctionSnapshot) -> SyncSnapshot:
        if state.is_os_function:
            return state.resume_not_handled()
        name = str(state.function_name)
        if state.object_id is not None or name not in self._functions:
            return state.resume({"exc_type": "NameError", "message": f"name {name!r} is not defined"})
        self._send({"call": state.call_id, "name": name, "args": _plain(state.args), "kwargs": _plain(state.kwargs)})
        return state.resume({"future": ...})

    def _look_up(self, state: NameLookupSnapshot) -> SyncSnapshot:
        name = state.variable_name
        if state.object_id is not None or name not in self._functions:
            return state.resume()

        def function() -> None: ...

        function.__name__ = name
        return state.resume(value=function)


def _limit_process(start: Json) -> None:
    """Limit the process, which the interpreter's process inherits: behind the limits of the interpreter."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - POSIX alone has it

    seconds = math.ceil(start["maxSeconds"]) + _SPARE_SECONDS
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (start["maxMemoryBytes"] + _SPARE_MEMORY_BYTES,) * 2)


def main() -> None:
    """Run the script of the first line of the standard input."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer

    def send(message: Json) -> None:
        answers.write(json.dumps(message).encode() + b"\n")
        answers.flush()

    def receive() -> Json:
        line = requests.readline()
        if not line:
            sys.exit()  # the server has ended
        message: Json = json.loads(line)
        return message

    start = receive()
    sys.path[:0] = start["path"]
    _limit_process(start)
    send(_Interpreter(start, send, receive).run())


if __name__ == "__main__":
    main()
