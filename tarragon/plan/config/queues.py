"""What the file of queues says: fair shares, preemption, and for each namespace a weight and a quota.

fair: true
preempt: true
namespaces:
  team-a: {weight: 2, quota: {nvidia.com/gpu: 8, cpu: 64}}
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from tarragon.base import quantity
from tarragon.base.errors import Problem
from tarragon.kube.meta import Json
from tarragon.scheduling.api.rules import Queue, Rules

FAIR, PREEMPT, NAMESPACES = "fair", "preempt", "namespaces"
WEIGHT, QUOTA = "weight", "quota"

_HEAVIEST = sys.float_info.max
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuesFile:
    """`rules`: with the defaults for what the file does not say; to be used only where there are no problems."""

    rules: Rules = field(default_factory=Rules)
    problems: Sequence[Problem] = ()


def read(document: Json) -> QueuesFile:
    """What it says, or all that is wrong with it. An empty file says nothing."""
    problems: list[Problem] = []
    fields = _fields(document, "", (FAIR, PREEMPT, NAMESPACES), problems)
    defaults = Rules()
    rules = Rules(
        is_fair=_claim(fields, FAIR, problems, default=defaults.is_fair),
        preempts=_claim(fields, PREEMPT, problems, default=defaults.preempts),
        queues=_queues(fields.get(NAMESPACES), problems),
    )
    return QueuesFile(rules=rules, problems=problems)


def _queues(said: Json, problems: list[Problem]) -> dict[str, Queue]:
    if said is None:
        return {}
    if not isinstance(said, Mapping):
        problems.append(Problem(NAMESPACES, f"must map namespaces to their {WEIGHT} and {QUOTA}, not {said!r}"))
        return {}
    return {str(name): _queue(str(name), facts, problems) for name, facts in said.items()}


def _queue(name: str, said: Json, problems: list[Problem]) -> Queue:
    path = f"{NAMESPACES}.{name}"
    if not _NAMESPACE.fullmatch(name):
        problems.append(Problem(path, f"{name!r} is no name of a namespace", "lower-case letters, digits and -"))
    fields = _fields(said, path, (WEIGHT, QUOTA), problems)
    weight = fields.get(WEIGHT, 1)
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight <= _HEAVIEST:
        problems.append(Problem(f"{path}.{WEIGHT}", f"must be a number above 0, not {weight!r}"))
        weight = 1
    return Queue(weight=float(weight), quota=_quota(fields.get(QUOTA), f"{path}.{QUOTA}", problems))


def _quota(said: Json, path: str, problems: list[Problem]) -> dict[str, int]:
    if said is None:
        return {}
    if not isinstance(said, Mapping):
        problems.append(Problem(path, f"must map names of resources to amounts, not {said!r}", "as {cpu: 64}"))
        return {}
    found = {}
    for name, said_of_it in said.items():
        amount = _amount(said_of_it)
        if amount is None or amount < 0:
            words = f"must be an amount from 0, not {said_of_it!r}"
            problems.append(Problem(f"{path}.{name}", words, "as 8, 500m or 64Gi"))
        else:
            found[str(name)] = amount
    return found


def _amount(said: Json) -> int | None:
    if isinstance(said, bool) or not isinstance(said, (str, int, float)):
        return None
    try:
        return quantity.milli(said)
    except ValueError:
        return None


def _claim(fields: Mapping[str, Json], name: str, problems: list[Problem], *, default: bool) -> bool:
    value = fields.get(name, default)
    if isinstance(value, bool):
        return value
    problems.append(Problem(name, f"must be true or false, not {value!r}"))
    return default


def _fields(said: Json, path: str, known: Sequence[str], problems: list[Problem]) -> dict[str, Json]:
    if said is None:
        return {}
    if not isinstance(said, Mapping):
        problems.append(Problem(path, f"must be an object with some of {', '.join(known)}, not {said!r}"))
        return {}
    for name in said:
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            problems.append(Problem(f"{path}.{name}" if path else str(name), "is not a known field", remedy))
    return {str(name): value for name, value in said.items() if name in known}
