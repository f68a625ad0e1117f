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


ENDING = """
import atexit, sys, threading
from concurrent.futures import ThreadPoolExecutor
from bridge.hosting import process

process.EXIT_SECONDS = 0.2
threading.Thread(target={work}).start()
pool = ThreadPoolExecutor(1)
pool.submit(int).result()
atexit.register({last})
atexit.register(print, "at exit")
sys.exit(process.exit_process(3))
"""


@pytest.mark.parametrize(
    ("work", "last"),
    [("int", "int"), ("threading.Event().wait", "int"), ("threading.Event().wait", "threading.Event().wait")],
    ids=["all end", "a thread goes on", "a function of atexit never ends"],
)
def test_functions_of_atexit_run_once_before_the_process_is_ended(work: str, last: str) -> None:
    program = ENDING.format(work=work, last=last)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=40, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "at exit\n", "")
