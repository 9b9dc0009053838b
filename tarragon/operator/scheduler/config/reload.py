"""Loads the scheduling rules from a file that may be edited while the operator runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog
import yaml

from tarragon.base.errors import TarragonError
from tarragon.plan.config.queues import decode_queue_file
from tarragon.scheduling.api.rules import SchedulingRules

log = structlog.get_logger(__name__)


class InvalidQueuesFile(TarragonError):
    """The queues file cannot be read or is invalid."""

    exit_code = 2


class ReloadingRules:
    """Callable that returns the current rules. An invalid edit changes nothing; the log and a metric report it."""

    def __init__(self, file: Path, base: SchedulingRules) -> None:
        """`base` provides the rules that are not in the file. Raises InvalidQueuesFile."""
        self._file = file
        self._base = base
        self._last_stat = _stat(file)
        self._rules = self._read()
        self._on_edit: Callable[[bool], None] | None = None

    def __call__(self) -> SchedulingRules:
        """Stat the file, and read it again if it has changed."""
        current = _stat(self._file)
        if current == self._last_stat:
            return self._rules
        self._last_stat = current
        try:
            self._rules, is_refused = self._read(), False
            log.info("queues file reloaded", file=str(self._file))
        except InvalidQueuesFile as bad:
            is_refused = True
            log.warning("invalid queues file: the previous rules stay in effect", what=bad.summary, why=bad.cause)
        if self._on_edit is not None:
            self._on_edit(is_refused)
        return self._rules

    def on_edit(self, handler: Callable[[bool], None]) -> None:
        """Call `handler` after each edit with whether the file was invalid."""
        self._on_edit = handler

    def _read(self) -> SchedulingRules:
        try:
            parsed = decode_queue_file(yaml.safe_load(self._file.read_bytes()))
        except OSError as error:
            raise InvalidQueuesFile(f"can't read {self._file}", why=error.strerror or str(error)) from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            # PyYAML raises a plain ValueError for impossible dates such as 2026-01-99.
            raise InvalidQueuesFile(f"{self._file} is not YAML", why=str(error)) from error
        if parsed.problems:
            problems = "\n".join(f"  {each}" for each in parsed.problems)
            raise InvalidQueuesFile(f"{self._file} is not a valid queues file", why=problems)
        base = self._base
        return replace(
            parsed.rules,
            starvation_seconds=base.starvation_seconds,
            idle_seconds=base.idle_seconds,
            cool_down_seconds=base.cool_down_seconds,
        )


def _stat(file: Path) -> tuple[int, int, int] | None:
    """Identity of the file behind the path: a mounted ConfigMap is updated by replacing a symbolic link."""
    try:
        result = file.stat()
    except OSError:
        return None
    return result.st_ino, result.st_mtime_ns, result.st_size
