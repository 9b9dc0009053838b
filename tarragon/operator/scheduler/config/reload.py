"""The rules of scheduling as they stand in a file that people edit while the operator runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog
import yaml

from tarragon.base.errors import TarragonError
from tarragon.plan.config.queues import read
from tarragon.scheduling.api.rules import Rules

log = structlog.get_logger(__name__)


class BadQueues(TarragonError):
    """A file of queues that can't be meant."""

    exit_code = 2


class RulesInFile:
    """Called, it says what counts now. An edit that can't be meant changes nothing; the log and a metric say so."""

    def __init__(self, file: Path, base: Rules) -> None:
        """`base` has what the file does not speak of. Raises BadQueues."""
        self._file = file
        self._base = base
        self._seen = _sight(file)
        self._rules = self._read()
        self._tell: Callable[[bool], None] | None = None

    def __call__(self) -> Rules:
        """Looks at the file each time, and reads it when it is another one than before."""
        seen = _sight(self._file)
        if seen == self._seen:
            return self._rules
        self._seen = seen
        try:
            self._rules, is_refused = self._read(), False
            log.info("queues: the file was read anew", file=str(self._file))
        except BadQueues as bad:
            is_refused = True
            log.warning("queues: what counted before goes on to count", what=bad.what, why=bad.why)
        if self._tell is not None:
            self._tell(is_refused)
        return self._rules

    def on_edit(self, tell: Callable[[bool], None]) -> None:
        """Told after each edit whether it was refused."""
        self._tell = tell

    def _read(self) -> Rules:
        try:
            said = read(yaml.safe_load(self._file.read_bytes()))
        except OSError as error:
            raise BadQueues(f"can't read {self._file}", why=error.strerror or str(error)) from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            # Of the 99th day of a month, and the like, PyYAML lets Python's own words through.
            raise BadQueues(f"{self._file} is not YAML", why=str(error)) from error
        if said.problems:
            problems = "\n".join(f"  {each}" for each in said.problems)
            raise BadQueues(f"{self._file} is no file of queues", why=problems)
        base = self._base
        return replace(said.rules, aged=base.aged, idle=base.idle, cool_down=base.cool_down)


def _sight(file: Path) -> tuple[int, int, int] | None:
    """Of what the name leads to now: a mounted ConfigMap is a link that is moved."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
