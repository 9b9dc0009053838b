"""What the replicas have said so far: which logs are read and how far, their last lines, how many there were."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tarragon.cli.output.log_lines import Position, Stamp, stamped
from tarragon.job.model import Replica
from tarragon.job.spoken import spoken

_KEPT = 60


@dataclass(frozen=True, slots=True)
class Instance:
    """One run of one container: a restart begins a new log. `replica` says whose lines these are."""

    replica: Replica
    uid: str
    container: str
    number: int

    def before(self) -> Instance:
        return replace(self, number=self.number - 1)


class LogBook:
    """Outlives connections: after a broken one the same log is read again, and what was said already is left out.

    The position is the container's, not its run's: a container that restarts while it is asked for its log answers
    with the next one, and that must not be told twice either. Moments only grow from run to run.
    """

    def __init__(self) -> None:
        self._positions: dict[tuple[str, str], Position] = {}
        self._firsts: dict[tuple[str, str], Stamp] = {}
        self._begun: set[Instance] = set()
        self._heard: dict[Instance, tuple[Stamp, Stamp]] = {}
        self._complete: set[Instance] = set()
        self._overtaken: set[Instance] = set()
        self.tails: dict[Replica, deque[str]] = {}
        self.said: dict[Replica, int] = {}

    def begin(self, instance: Instance) -> None:
        """Its log is about to be read, perhaps not for the first time."""
        self._begun.add(instance)
        self._position(instance).resume()

    def has_begun(self, instance: Instance) -> bool:
        return instance in self._begun

    def first_heard(self, instance: Instance) -> Stamp | None:
        """The moment of the first line that was said for it; None when there was none yet."""
        heard = self._heard.get(instance)
        return None if heard is None else heard[0]

    def last_heard(self, instance: Instance) -> Stamp | None:
        """The same of the last line."""
        heard = self._heard.get(instance)
        return None if heard is None else heard[1]

    def is_complete(self, instance: Instance) -> bool:
        return instance in self._complete

    def complete(self, instance: Instance) -> None:
        """It has been read to its end."""
        self._complete.add(instance)

    def new(self, instance: Instance, lines: Sequence[str]) -> list[tuple[str, str]]:
        """Those of the lines that were not said before, each with its timestamp as written."""
        position = self._position(instance)
        fresh = []
        for line in lines:
            stamp, text = stamped(line)
            if position.is_new(stamp):
                self._firsts.setdefault((instance.uid, instance.container), stamp)
                self._heard[instance] = (self._heard.get(instance, (stamp,))[0], stamp)
                fresh.append((line[: len(line) - len(text)].rstrip(), text))
        return self._told(instance, fresh)

    def overtaken(self, instance: Instance, lines: Sequence[str]) -> list[tuple[str, str]]:
        """Of the whole log of a run those lines that are older than the first that was said of their container; once.

        Who asks for the log of a container that restarts just then is answered with the next one.
        """
        first = self._firsts.get((instance.uid, instance.container))
        if first is None or instance in self._overtaken:
            return []
        self._overtaken.add(instance)
        stamps = [(line, *stamped(line)) for line in lines]
        late = [(line[: len(line) - len(text)].rstrip(), text) for line, stamp, text in stamps if stamp < first]
        return self._told(instance, late)

    def _told(self, instance: Instance, fresh: list[tuple[str, str]]) -> list[tuple[str, str]]:
        fresh = [(moment, part) for moment, text in fresh for part in spoken(text).split("\n")]
        self.tails.setdefault(instance.replica, deque(maxlen=_KEPT)).extend(text for _, text in fresh)
        self.said[instance.replica] = self.said.get(instance.replica, 0) + len(fresh)
        return fresh

    def _position(self, instance: Instance) -> Position:
        return self._positions.setdefault((instance.uid, instance.container), Position())
