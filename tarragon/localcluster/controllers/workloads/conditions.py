"""Conditions of a status, whose lastTransitionTime moves only when their status does."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from tarragon.kube.codec import format_time
from tarragon.localcluster.controllers.workloads.model import Json


def found(conditions: Sequence[Json], kind: str) -> Json | None:
    return next((each for each in conditions if each["type"] == kind), None)


def with_condition(conditions: Sequence[Json], wanted: Json, now: dt.datetime, *stamps: str) -> list[Json]:
    """Return the conditions with `wanted` in place of the one of its type.

    `wanted` has type, status, reason and message; the fields named in `stamps` are set to `now`. A condition that
    already has the same status and reason does not change.
    """
    before = found(conditions, wanted["type"])
    if before is not None and all(before.get(field) == wanted.get(field) for field in ("status", "reason")):
        return list(conditions)
    stays = before is not None and before["status"] == wanted["status"]
    since = before["lastTransitionTime"] if before is not None and stays else format_time(now)
    new = {**wanted, **dict.fromkeys(stamps, format_time(now)), "lastTransitionTime": since}
    return [*(each for each in conditions if each["type"] != wanted["type"]), new]


def without(conditions: Sequence[Json], kind: str) -> list[Json]:
    return [each for each in conditions if each["type"] != kind]
