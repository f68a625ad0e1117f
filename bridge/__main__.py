"""``python -m bridge``, and the command ``bridge``."""

import gc
import sys

_INTERRUPTED = 130


def main() -> int:
    """Run the command line; see `bridge.cli.main`.

    Returns:
        The exit code.
    """
    gc.disable()  # until the command is imported: traversing imported objects takes a seventh of the start
    try:
        from bridge.cli import main as run  # noqa: PLC0415 - it takes a while, in which Ctrl-C may come
        from bridge.hosting.process import exit_process  # noqa: PLC0415 - as above

        return exit_process(run())
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    if not sys.flags.safe_path:
        # Python puts the working directory first, where a file may have the name of a module that we need.
        del sys.path[0]
    sys.exit(main())
