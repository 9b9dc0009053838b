"""Where the installed commands begin: while they are being imported, Ctrl-C ends them without a word."""

from __future__ import annotations

import signal
from typing import NoReturn

# Not for who has it ignored, as a job of a script in the background has.
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
