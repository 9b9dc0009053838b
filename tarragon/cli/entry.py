"""The installed console scripts. Ctrl-C during the imports ends the process without a traceback."""

from __future__ import annotations

import signal
from typing import NoReturn

# A background job of a shell script ignores SIGINT: leave that as it is.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> NoReturn:
    from tarragon.cli.main import main

    main()


def plugin() -> NoReturn:
    from tarragon.cli.main import plugin

    plugin()


def complete_plugin() -> NoReturn:
    from tarragon.cli.main import complete_plugin

    complete_plugin()
