"""Conditions as controllers keep them: the time of a transition moves when the status does, and only then."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from tarragon.kube.codec import timestamp
from tarragon.localcluster.controllers.workloads.model import Json


def found(conditions: Sequence[Json], kind: str) -> Json | None:
    return next((each for each in conditions if each["type"] == kind), None)


def with_condition(conditions: Sequence[Json], wanted: Json, now: dt.datetime, *stamps: str) -> list[Json]:
    """`wanted` has type, status, reason and message; `stamps` are other times that are now.

    One of the same status and reason stays as it is.
    """
    before = found(conditions, wanted["type"])
    if before is not None and all(before.get(field) == wanted.get(field) for field in ("status", "reason")):
        return list(conditions)
    stays = before is not None and before["status"] == wanted["status"]
    since = before["lastTransitionTime"] if before is not None and stays else timestamp(now)
    new = {**wanted, **dict.fromkeys(stamps, timestamp(now)), "lastTransitionTime": since}
    return [*(each for each in conditions if each["type"] != wanted["type"]), new]


def without(conditions: Sequence[Json], kind: str) -> list[Json]:
    return [each for each in conditions if each["type"] != kind]
