"""Decodes the queue file: fair shares, preemption, and a weight and a quota for each namespace.

fair: true
preempt: true
namespaces:
  team-a: {weight: 2, quota: {nvidia.com/gpu: 8, cpu: 64}}
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from tarragon.base import quantity
from tarragon.base.errors import Problem
from tarragon.kube import name_validation
from tarragon.kube.meta import Json
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules

FAIR, PREEMPT, NAMESPACES = "fair", "preempt", "namespaces"
WEIGHT, QUOTA = "weight", "quota"

_MAX_WEIGHT = sys.float_info.max


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFile:
    """A decoded queue file. `rules` has defaults for missing fields and may be used only if there are no problems."""

    rules: SchedulingRules = field(default_factory=SchedulingRules)
    problems: Sequence[Problem] = ()


def decode_queue_file(document: Json) -> QueueFile:
    """Decode a queue file; the result lists all its problems. An empty file is valid."""
    problems: list[Problem] = []
    fields = _fields(document, "", (FAIR, PREEMPT, NAMESPACES), problems)
    defaults = SchedulingRules()
    rules = SchedulingRules(
        is_fair_share=_boolean(fields, FAIR, problems, default=defaults.is_fair_share),
        is_preemption_enabled=_boolean(fields, PREEMPT, problems, default=defaults.is_preemption_enabled),
        queues=_queues(fields.get(NAMESPACES), problems),
    )
    return QueueFile(rules=rules, problems=problems)


def _queues(value: Json, problems: list[Problem]) -> dict[str, QueueRules]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.append(Problem(NAMESPACES, f"must map namespaces to their {WEIGHT} and {QUOTA}, not {value!r}"))
        return {}
    return {str(name): _queue(str(name), entry, problems) for name, entry in value.items()}


def _queue(name: str, value: Json, problems: list[Problem]) -> QueueRules:
    path = f"{NAMESPACES}.{name}"
    if name_validation.label(name):
        problems.append(
            Problem(path, f"{name!r} is not a valid namespace name", "use lower-case letters, digits and -")
        )
    fields = _fields(value, path, (WEIGHT, QUOTA), problems)
    weight = fields.get(WEIGHT, 1)
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight <= _MAX_WEIGHT:
        problems.append(Problem(f"{path}.{WEIGHT}", f"must be a number greater than 0, not {weight!r}"))
        weight = 1
    return QueueRules(weight=float(weight), quota=_quota(fields.get(QUOTA), f"{path}.{QUOTA}", problems))


def _quota(value: Json, path: str, problems: list[Problem]) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"must map resource names to quantities, not {value!r}", "such as {cpu: 64}"))
        return {}
    quota = {}
    for name, raw_amount in value.items():
        amount = _amount(raw_amount)
        if amount is None or amount < 0:
            message = f"must be a quantity of 0 or more, not {raw_amount!r}"
            problems.append(Problem(f"{path}.{name}", message, "such as 8, 500m or 64Gi"))
        else:
            quota[str(name)] = amount
    return quota


def _amount(value: Json) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        return quantity.parse_milli(value)
    except ValueError:
        return None


def _boolean(fields: Mapping[str, Json], name: str, problems: list[Problem], *, default: bool) -> bool:
    value = fields.get(name, default)
    if isinstance(value, bool):
        return value
    problems.append(Problem(name, f"must be true or false, not {value!r}"))
    return default


def _fields(document: Json, path: str, known: Sequence[str], problems: list[Problem]) -> dict[str, Json]:
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        problems.append(Problem(path, f"must be an object with the fields {', '.join(known)}, not {document!r}"))
        return {}
    for name in document:
        if name not in known:
            matches = get_close_matches(str(name), known, 1)
            remedy = f"did you mean {matches[0]}?" if matches else f"known fields are {', '.join(known)}"
            problems.append(Problem(f"{path}.{name}" if path else str(name), "is not a known field", remedy))
    return {str(name): value for name, value in document.items() if name in known}
