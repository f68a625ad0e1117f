from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import signal, threading
import anyio
from bridge.hosting.process import run_interruptible

other = threading.Thread(target=threading.Event().wait, daemon=True)
other.start()


async def wait():
    # To another thread: nothing wakes the main thread, as if the signal had come just before it waits.
    signal.pthread_kill(other.ident, signal.SIGINT)
    await anyio.sleep_forever()


try:
    run_interruptible(wait)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_an_interrupt_ends_a_loop_that_nothing_else_wakes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=40, check=False, start_new_session=True
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
