"""What gangs that run hold, kept from round to round: a few of them change, and there are thousands of pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tarragon.scheduling.api.snapshot import RunningGang
from tarragon.scheduling.state.node_requests import Amounts

Holds = tuple[Amounts, Amounts]
"""The rows on which one gang holds something, and what, by column."""


class Pieces:
    """Of the gangs of the round before. Told apart by which objects they are; the tables are replaced, not changed."""

    def __init__(self, columns: int) -> None:
        self._places: dict[int, tuple[RunningGang, int]] = {}
        """By which object it is, the gang, which therefore stays, and its place among all that ever ran at once."""
        self._vacant: list[int] = []
        self._owners = np.zeros(0, np.int64)
        """By piece, that place."""
        self._rows = np.zeros(0, np.int64)
        self._amounts = np.zeros((0, columns), np.int64)

    def of(self, gangs: Sequence[RunningGang], tell: Callable[[RunningGang], Holds]) -> tuple[Amounts, Holds]:
        """By piece the number of its gang among these, its row and its amounts."""
        self._forget(self._places.keys() - set(map(id, gangs)))
        self._add([gang for gang in gangs if id(gang) not in self._places], tell)
        numbers = np.zeros(len(self._places) + len(self._vacant), np.int64)
        numbers[[self._places[id(gang)][1] for gang in gangs]] = np.arange(len(gangs))
        return numbers[self._owners], (self._rows, self._amounts)

    def _forget(self, gone: set[int]) -> None:
        if gone:
            vacant = [self._places.pop(each)[1] for each in gone]
            self._vacant += vacant
            stays = np.ones(len(self._places) + len(self._vacant), np.bool_)
            stays[vacant] = False
            stay = stays[self._owners]
            self._owners, self._rows, self._amounts = self._owners[stay], self._rows[stay], self._amounts[stay]

    def _add(self, gangs: Sequence[RunningGang], tell: Callable[[RunningGang], Holds]) -> None:
        if not gangs:
            return
        told, places = [], list[int]()
        for gang in gangs:
            place = self._vacant.pop() if self._vacant else len(self._places)
            self._places[id(gang)] = gang, place
            told.append(tell(gang))
            places.append(place)
        self._owners = np.concatenate([self._owners, np.repeat(places, [len(rows) for rows, _ in told])])
        self._rows = np.concatenate([self._rows, *(rows for rows, _ in told)])
        self._amounts = np.concatenate([self._amounts, *(amounts for _, amounts in told)])
