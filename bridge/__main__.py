"""``python -m bridge``: the command ``bridge``."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # Python puts the working directory first, where a file may have the name of a module that we need.
        del sys.path[0]
    from bridge.cli import main

    sys.exit(main())
