"""Runs tarragon commands as subprocesses for `top`, with the same output as at a shell prompt."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from subprocess import DEVNULL, PIPE, STDOUT

from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.output.log_lines import LineSplitter
from tarragon.cli.top.job_rows import JobRow

_AS_COMMAND = ("-m", "tarragon")
_AS_PLUGIN = ("-c", "from tarragon.cli.main import plugin; plugin()")
_CHUNK = 65536
_EXIT_TIMEOUT = 2.0
"""Seconds that a terminated command may take to exit."""


def command_arguments(settings: GlobalOptions, command: str, each: JobRow, *options: str) -> Sequence[str]:
    """Return the arguments of the command for the job in `each`, without the name of the program."""
    given = (("--kubeconfig", settings.kubeconfig), ("--context", settings.context))
    target = [part for flag, value in given if value for part in (flag, value)]
    return [*target, command, each.job.name, "-n", each.namespace, *options]


async def run_command(settings: GlobalOptions, line: Sequence[str], said: Callable[[Sequence[str]], None]) -> int:
    """Run the command, pass its output to `said` as lines arrive, and return its exit code.

    Cancellation terminates the command.
    """
    colors = "always" if settings.terminal().colors_out else "never"
    program = [sys.executable, *(_AS_PLUGIN if settings.is_plugin else _AS_COMMAND)]
    process = await asyncio.create_subprocess_exec(
        *program,
        *line,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        # In its own session, so that Ctrl-C in `top` does not reach it.
        start_new_session=True,
        env={**os.environ, "TARRAGON_COLOR": colors},
    )
    lines = LineSplitter()
    try:
        while process.stdout is not None and (chunk := await process.stdout.read(_CHUNK)):
            said(lines.feed(chunk))
        said(lines.finish())
        return await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(_EXIT_TIMEOUT):
                    await process.wait()
