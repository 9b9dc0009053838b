"""How far a training is: parses reports of programs, merges them, and writes them into the job's status.

The body of a report is the `trainerStatus` of Kubeflow Trainer (KEP-2779). A program can also report steps: as two of
the metrics, such as `step` and `total_steps`. A report is what a user's program says, so nothing here trusts it.

Whatever learns progress from elsewhere, such as from a log, calls `merge`, and writes `progress_patch` if `merge`
returns anything.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from tarragon.base.errors import Problem
from tarragon.kube.codec import decode, format_micro_time, format_time, parse_time
from tarragon.kube.meta import Json

TRAINER_STATUS = "trainerStatus"
"""The field of a report's body, and of a job's status."""

MAX_BODY_BYTES = 64 * 1024
MAX_METRICS = 256
"""The most metrics that a report may have."""
MAX_STORED_METRICS = 32
"""The most metrics that a job's status keeps: the status of every job is in the API server's database and in caches."""
MAX_NAME_LENGTH = 63
MAX_VALUE_LENGTH = 253
MAX_COUNT = 10**15
"""More steps than any training has, and still exact as a float."""
MAX_SECONDS = 10 * 366 * 24 * 3600
"""Ten years. A remaining time beyond it says nothing."""

DONE_METRICS = ("step", "current_step", "global_step")
"""Metrics that count steps. HuggingFace Transformers reports `current_step`."""
TOTAL_METRICS = ("total_steps", "max_steps")
LOSS_METRICS = ("loss", "train_loss", "training_loss")

LOG_YIELDS_SECONDS = 300.0
"""What a log says does not replace what the same program reported within this time."""
REPLICAS_AGREE_SECONDS = 60.0
"""A replica that is behind another one does not replace that one's report within this time."""
CLOCKS_AGREE_SECONDS = 60.0
"""The clocks of two replicas of the operator differ by less."""

_PERCENT = 100


class Unit(StrEnum):
    STEPS = "steps"
    EPOCHS = "epochs"
    PERCENT = "percent"


class Source(StrEnum):
    """Where progress was learned."""

    REPORT = "report"
    LOG = "log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a training is. `updated_at` is when the report arrived, by the clock of the operator."""

    updated_at: dt.datetime
    done: int | None = None
    total: int | None = None
    unit: Unit = Unit.STEPS
    remaining_seconds: int | None = None
    """The program's own estimate, as of `updated_at`."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    pod_uid: str = ""
    """The pod whose program this is about."""
    source: Source = Source.REPORT
    is_of_earlier_pod: bool = False
    """Whether that pod is gone although the job goes on. The training continues from its last checkpoint, if any."""

    @property
    def fraction(self) -> float | None:
        """The part that is done, from 0 to 1."""
        return None if self.done is None or not self.total else self.done / self.total

    @property
    def percentage(self) -> int | None:
        """The part that is done, from 0 to 100. Only a training that is complete has 100."""
        return None if self.done is None or not self.total else self.done * _PERCENT // self.total

    @property
    def is_complete(self) -> bool:
        return self.total is not None and self.done == self.total

    @property
    def loss(self) -> str:
        """The loss as reported; empty if there is none."""
        return next((self.metrics[name] for name in LOSS_METRICS if name in self.metrics), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReport:
    """A parsed report: its progress or its problems; neither, if it is empty."""

    progress: Progress | None = None
    problems: tuple[Problem, ...] = ()


# ---------------------------------------------------------------------------------------------------- reading reports


def parse_report(body: bytes, received_at: dt.datetime) -> ParsedReport:
    """Parse and validate the body of a report. All its problems are found at once. Never raises."""
    if len(body) > MAX_BODY_BYTES:
        return _rejected(Problem("", f"the body has more than {MAX_BODY_BYTES:,} bytes"))
    if not body.strip():
        return ParsedReport()
    try:
        found: Mapping[str, Json] = decode(body, dict)
    except msgspec.MsgspecError as error:
        return _rejected(Problem("", f"the body is not a JSON object: {error}"))
    given = found.get(TRAINER_STATUS)
    if given is None or given == {}:
        return ParsedReport()
    if not isinstance(given, dict):
        return _rejected(Problem(TRAINER_STATUS, "must be an object"))
    problems = tuple(_problems(given))
    return ParsedReport(problems=problems) if problems else ParsedReport(progress=_progress(given, received_at))


def _rejected(problem: Problem) -> ParsedReport:
    return ParsedReport(problems=(problem,))


def _problems(given: Mapping[str, Json]) -> Iterator[Problem]:
    for name, most in (("progressPercentage", _PERCENT), ("estimatedRemainingSeconds", None)):
        if given.get(name) is not None and not _is_count(given[name], most):
            bounds = "0 or more" if most is None else f"between 0 and {most}"
            yield Problem(f"{TRAINER_STATUS}.{name}", f"must be a whole number, {bounds}")
    time = given.get("lastUpdatedTime")
    if time is not None and not _is_time(time):
        yield Problem(
            f"{TRAINER_STATUS}.lastUpdatedTime", "must be a time as in RFC 3339, such as 2026-11-21T10:00:00Z"
        )
    yield from _metric_problems(given.get("metrics"))


def _metric_problems(given: Json) -> Iterator[Problem]:
    path = f"{TRAINER_STATUS}.metrics"
    if given is None:
        return
    if not isinstance(given, list):
        yield Problem(path, "must be a list of objects with `name` and `value`")
    elif len(given) > MAX_METRICS:
        yield Problem(path, f"has {len(given):,} metrics; the most is {MAX_METRICS}")
    else:
        for index, metric in enumerate(given):
            yield from _problems_of_metric(f"{path}[{index}]", metric)


def _problems_of_metric(path: str, metric: Json) -> Iterator[Problem]:
    if not isinstance(metric, dict):
        yield Problem(path, "must be an object with `name` and `value`")
        return
    for name, longest in (("name", MAX_NAME_LENGTH), ("value", MAX_VALUE_LENGTH)):
        text = metric.get(name)
        if not isinstance(text, str):
            yield Problem(f"{path}.{name}", "must be a string")
        elif not 1 <= len(text) <= longest or not text.isprintable():
            yield Problem(f"{path}.{name}", f"must have 1 to {longest} printable characters")


def _progress(given: Mapping[str, Json], received_at: dt.datetime) -> Progress:
    """Return the progress of a valid body. Its `lastUpdatedTime` is by a clock that may be wrong, and is not used."""
    metrics = {metric["name"]: metric["value"] for metric in given.get("metrics") or ()}
    remaining = given.get("estimatedRemainingSeconds")
    progress = Progress(
        updated_at=received_at,
        remaining_seconds=None if remaining is None else min(int(remaining), MAX_SECONDS),
        metrics=_stored(metrics),
    )
    return _with_amounts(progress, metrics, given.get("progressPercentage"))


def _with_amounts(progress: Progress, metrics: Mapping[str, str], percentage: Json) -> Progress:
    """Return the progress with steps, if the metrics have both numbers; otherwise with the percentage, if any."""
    done, total = _first_count(metrics, DONE_METRICS), _first_count(metrics, TOTAL_METRICS)
    if done is not None and total:
        return replace(progress, done=min(done, total), total=total)
    if percentage is not None:
        return replace(progress, done=int(percentage), total=_PERCENT, unit=Unit.PERCENT)
    return progress if done is None else replace(progress, done=done)


def _first_count(metrics: Mapping[str, str], names: Iterable[str]) -> int | None:
    return next((count for name in names if (count := _count(metrics.get(name, ""))) is not None), None)


def _count(text: str) -> int | None:
    """Read a count, which may be written as `12` or `12.0`; None for anything else, however large."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if math.isfinite(value) and 0 <= value <= MAX_COUNT else None


def _stored(metrics: Mapping[str, str]) -> dict[str, str]:
    """Return the metrics to keep: those that have a meaning here, then the first others."""
    known = (*DONE_METRICS, *TOTAL_METRICS, *LOSS_METRICS)
    chosen = {*sorted(metrics, key=lambda name: name not in known)[:MAX_STORED_METRICS]}
    return {name: value for name, value in metrics.items() if name in chosen}


def _is_count(value: Json, most: int | None) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # An integer may be too large for a float.
    is_whole = isinstance(value, int) or value.is_integer()
    return is_whole and value >= 0 and (most is None or value <= most)


def _is_time(value: Json) -> bool:
    try:
        return isinstance(value, str) and parse_time(value) is not None
    except (ValueError, OverflowError):
        return False


# ------------------------------------------------------------------------------------------------------------- merging


def merge(recorded: Progress | None, found: Progress) -> Progress | None:
    """Return what the job's status should say after `found`; None if that changes nothing.

    A program that goes back, because it continues from a checkpoint, is believed. Of several replicas that report the
    same training, the one that is furthest counts.
    """
    if recorded is None or recorded.is_of_earlier_pod:
        return found
    if is_overtaken(found, recorded) or _yields(recorded, found):
        return None
    return found if found.pod_uid != recorded.pod_uid else _continued(recorded, found)


def is_overtaken(found: Progress, recorded: Progress) -> bool:
    """Whether the recorded progress is newer."""
    return not is_from_future(recorded, found.updated_at) and found.updated_at < recorded.updated_at


def is_from_future(recorded: Progress, now: dt.datetime) -> bool:
    """Whether the progress was recorded while a clock was wrong."""
    return (recorded.updated_at - now).total_seconds() > CLOCKS_AGREE_SECONDS


def _yields(recorded: Progress, found: Progress) -> bool:
    """Whether the recorded progress is young enough, and better than the one that was found."""
    if is_from_future(recorded, found.updated_at):
        return False
    age = (found.updated_at - recorded.updated_at).total_seconds()
    if found.source is Source.LOG and recorded.source is Source.REPORT:
        return age < LOG_YIELDS_SECONDS
    if found.pod_uid == recorded.pod_uid or age >= REPLICAS_AGREE_SECONDS:
        return False
    if found.fraction is recorded.fraction is None:
        return (found.done or 0) < (recorded.done or 0)
    return (found.fraction or 0.0) < (recorded.fraction or 0.0)


def _continued(recorded: Progress, found: Progress) -> Progress:
    """Add what the program has said before: its last report often has a percentage only, and no metrics."""
    metrics = found.metrics or recorded.metrics
    if found.done is None:
        return replace(found, done=recorded.done, total=recorded.total, unit=recorded.unit, metrics=metrics)
    if found.unit is Unit.PERCENT and recorded.unit is not Unit.PERCENT and recorded.total:
        done = recorded.total * found.done // _PERCENT
        return replace(found, done=done, total=recorded.total, unit=recorded.unit, metrics=metrics)
    return replace(found, metrics=metrics)


def with_pods(recorded: Progress | None, pod_uids: AbstractSet[str]) -> Progress | None:
    """Return the progress of a job that is not finished and has these pods: the report of a former pod says so."""
    if recorded is None or not recorded.pod_uid or recorded.pod_uid in pod_uids or recorded.is_of_earlier_pod:
        return recorded
    return replace(recorded, is_of_earlier_pod=True, metrics={}, remaining_seconds=None)


# ---------------------------------------------------------------------------------------------------------------- text


def progress_text(progress: Progress | None, now: dt.datetime | None = None) -> str:
    """Return the progress as one short text, such as `step 1,200/4,000 (30 %) · loss 0.11 · 2m left`.

    The remaining time is as of `now`, or as of the report. The text is empty for progress of an earlier pod.
    """
    if progress is None or progress.is_of_earlier_pod:
        return ""
    loss = f"loss {_number_text(progress.loss)}" if progress.loss else ""
    return " · ".join(filter(None, (amount_text(progress), loss, _remaining_text(progress, now))))


def amount_text(progress: Progress) -> str:
    """Return how much is done: `step 1,200/4,000 (30 %)`, `3/10 epochs (30 %)`, `30 %` or `step 1,200`."""
    if progress.done is None:
        return ""
    if progress.percentage is None:
        return f"{progress.unit.value.removesuffix('s')} {progress.done:,}"
    if progress.unit is Unit.PERCENT:
        return f"{progress.percentage} %"
    amount = f"{progress.done:,}/{progress.total:,}"
    # Not `epoch 2/10`: that is what programs print while they are in the second one, and here two are done.
    counted = f"{amount} epochs" if progress.unit is Unit.EPOCHS else f"step {amount}"
    return f"{counted} ({progress.percentage} %)"


def _number_text(text: str) -> str:
    """Return a number with few digits; any other text cut short."""
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text[:12]


def _remaining_text(progress: Progress, now: dt.datetime | None) -> str:
    if progress.remaining_seconds is None or progress.is_complete:
        return ""
    age = 0.0 if now is None else max(0.0, (now - progress.updated_at).total_seconds())
    left = progress.remaining_seconds - int(age)
    return f"{_duration_text(left)} left" if left > 0 else ""


def _duration_text(seconds: int) -> str:
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if not minutes:
        return f"{seconds}s"
    if not hours:
        return f"{minutes}m"
    if not days:
        return f"{hours}h {minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{days}d {hours % 24}h" if hours % 24 else f"{days}d"


# ------------------------------------------------------------------------------------------------------------- storing


def progress_patch(progress: Progress) -> dict[str, Json]:
    """Return the merge patch of a job's status subresource that records the progress, and changes nothing else.

    It is to be made conditional on the job's resourceVersion, or it may reach a new job of the same name: in a patch of
    a custom status API servers ignore the UID.
    """
    trainer, ours = encode_trainer_status(progress), encode_progress(progress)
    return {
        "status": {
            # A null removes a field that an earlier report had.
            TRAINER_STATUS: {name: trainer.get(name) for name in _TRAINER_FIELDS},
            "tarragon": {"progress": {name: ours.get(name) for name in _FIELDS}},
        },
    }


_TRAINER_FIELDS = ("progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime")
_FIELDS = ("done", "total", "unit", "pod", "source", "at", "text", "earlier")


def encode_trainer_status(progress: Progress) -> dict[str, Json]:
    """Encode `status.trainerStatus` as Kubeflow Trainer does; empty for progress of an earlier pod."""
    if progress.is_of_earlier_pod:
        return {}
    fields: dict[str, Json] = {"lastUpdatedTime": format_time(progress.updated_at)}
    if progress.percentage is not None:
        fields["progressPercentage"] = progress.percentage
    if progress.remaining_seconds is not None:
        fields["estimatedRemainingSeconds"] = progress.remaining_seconds
    if progress.metrics:
        fields["metrics"] = [{"name": name, "value": value} for name, value in progress.metrics.items()]
    return fields


def encode_progress(progress: Progress) -> dict[str, Json]:
    """Encode `status.tarragon.progress`: what `trainerStatus` cannot say, and a text for the printer column."""
    fields: dict[str, Json] = {
        "done": progress.done,
        "total": progress.total,
        "unit": progress.unit.value,
        "pod": progress.pod_uid,
        "source": progress.source.value,
        "at": format_micro_time(progress.updated_at),
        # Without the remaining time: kubectl would show it unchanged for hours if the program stopped reporting.
        "text": progress_text(replace(progress, remaining_seconds=None)),
        "earlier": progress.is_of_earlier_pod,
    }
    # Compared one by one: 0 steps done is not the same as nothing known.
    return {name: value for name, value in fields.items() if value is not None and value is not False and value != ""}


def decode_progress(ours: Json, trainer: Json) -> Progress:
    """Decode `status.tarragon.progress` and `status.trainerStatus`.

    Raises ValueError, TypeError, KeyError or AttributeError if they are invalid: users can edit a status.
    """
    given: Mapping[str, Json] = trainer if isinstance(trainer, Mapping) else {}
    remaining = given.get("estimatedRemainingSeconds")
    metrics = given.get("metrics")
    done, total = (_optional(ours.get(name), _stored_count) for name in ("done", "total"))
    if done is not None and total and done > total:
        raise ValueError(f"{done} of {total} are done")
    return Progress(
        updated_at=_required_time(ours["at"]),
        done=done,
        total=total,
        unit=Unit(ours.get("unit", Unit.STEPS)),
        remaining_seconds=_optional(remaining, _stored_count),
        metrics={str(each["name"]): str(each["value"]) for each in metrics} if isinstance(metrics, list) else {},
        pod_uid=str(ours.get("pod", "")),
        source=Source(ours.get("source", Source.REPORT)),
        is_of_earlier_pod=ours.get("earlier") is True,
    )


def _optional(value: Json, read: Callable[[Json], int]) -> int | None:
    return None if value is None else read(value)


def _stored_count(value: Json) -> int:
    if not _is_count(value, MAX_COUNT):
        raise ValueError(f"{value!r} is not a count")
    return int(value)


def _required_time(value: Json) -> dt.datetime:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a time")
    return parse_time(value)
