"""Shows what would become of a queue: as a table, as sentences about one job, and as JSON."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tarragon.cli.explain.what_if import Scenario, WhatIfResult
from tarragon.cli.jobview.queueing import job_name_of_gang
from tarragon.cli.output.words import count, joined
from tarragon.job.model import parse_gang_name
from tarragon.kube.codec import format_time
from tarragon.kube.meta import Json
from tarragon.simulator.what_if.changed_starts import (
    changed_starts,
    is_affected,
    start_change,
    summary_of,
)
from tarragon.simulator.what_if.expected_runs import Basis
from tarragon.simulator.what_if.queue_course import GangCourse, QueueCourse

ROUGH = "~"
"""Before a time that follows from run times that are only assumed."""
MAX_NAMED = 5
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfReport:
    """Words for a result."""

    result: WhatIfResult
    namespace: str
    """Names of jobs in other namespaces have their namespace."""

    @property
    def now(self) -> dt.datetime:
        """When the cluster was read, in the time zone of this machine."""
        return self.result.baseline.snapshot.now.astimezone()

    def table_rows(self) -> Sequence[Sequence[str]]:
        """Return the header and a row for each job that waits, would be submitted, or changes."""
        baseline, scenarios = self.result.baseline.course, self.result.scenarios
        header = ["JOB", "STATE", "STARTS", "ENDS"]
        for scenario in scenarios:
            label = scenario.policy.upper() if self.result.asked.policies else "WHAT-IF"
            header += [f"{label}: STARTS", "ENDS", "CHANGE"]
        rows = [header]
        for name in self._names():
            before = baseline.gangs.get(name)
            row = [job_name_of_gang(name, self.namespace), self._state(name), *self._times(before, baseline)]
            for scenario in scenarios:
                after = scenario.course.gangs.get(name)
                row += [*self._times(after, scenario.course), _change_text(before, after)]
            rows.append(row)
        return rows

    def summary_lines(self) -> Iterator[str]:
        """Yield a sentence about the queue as it is, and one for each scenario, all about the jobs that are there."""
        names, asked = list(self.result.baseline.course.gangs), self.result.asked
        yield f"as it is ({self.result.baseline.policy}): {_summary_text(self.result.baseline.course, names)}"
        for scenario in self.result.scenarios:
            changes = (
                f" {asked.text}" if asked.text.startswith("without") else f" with {asked.text}" if asked.text else ""
            )
            yield f"{scenario.policy}{changes}: {_summary_text(scenario.course, names)}{self._waits(scenario)}"

    def notes(self) -> Iterator[str]:
        """Yield what was assumed."""
        yield from self.result.config.lines()
        yield self._run_times_text()
        cuts = [each.course.cut_at for each in self._scenarios() if each.course.cut_at is not None]
        if cuts:
            yield f"the queue is too long to follow it further than {self._moment(min(cuts))}"

    def job_lines(self, name: str) -> Iterator[str]:
        """Yield sentences about one job: what would become of it, and who would wait for another time."""
        before = self.result.baseline.course.gangs.get(name)
        if before is None:
            yield "what if: it does not wait or run, so nothing would change"
            return
        for scenario in self.result.scenarios:
            after = scenario.course.gangs.get(name)
            if after is None:
                continue
            outcome = self._outcome(before, after, scenario.course)
            yield f"what if {self._case(scenario)}: {outcome}{self._waits(scenario, name)}"
        if before.is_waiting:
            yield f"as it is, {self._outcome(None, before, self.result.baseline.course)} by the same simulation"
        yield self._run_times_text()

    def fields(self) -> Json:
        asked, config = self.result.asked, self.result.config
        return {
            "at": format_time(self.now),
            "operator": config.fields(),
            "changes": {
                "addNodes": [
                    {
                        "count": each.count,
                        **({"like": each.like} if each.like else {"resources": dict(each.amounts)}),
                        **({"gpuMemory": each.gpu_memory} if each.gpu_memory else {}),
                    }
                    for each in asked.added
                ],
                "removeNodes": list(asked.removed),
                "submit": list(asked.files),
            },
            "runTimes": {
                "finishedJobs": self.result.finished,
                **{str(basis): number for basis, number in self._bases().items()},
            },
            "asItIs": self._scenario_fields(self.result.baseline, with_changes=False),
            "whatIf": [self._scenario_fields(each, with_changes=True) for each in self.result.scenarios],
            "notes": list(self.notes()),
        }

    def _scenario_fields(self, scenario: Scenario, *, with_changes: bool) -> Json:
        course, before = scenario.course, self.result.baseline.course
        summary = summary_of(course, before.gangs)
        cut = {} if course.cut_at is None else {"simulatedUntil": format_time(self._at(course.cut_at))}
        names = [name for name in self._names() if name in course.gangs]
        return {
            "policy": scenario.policy,
            "summary": {
                "waiting": summary.waiting,
                "start": summary.started,
                "startWithinHour": summary.soon,
                "neverStart": summary.never,
                **_seconds_field("meanWaitSeconds", summary.mean_wait),
                **_seconds_field("meanCompletionSeconds", summary.mean_completion),
            },
            **cut,
            "jobs": [
                self._job_fields(course.gangs[name], before.gangs.get(name) if with_changes else None, course)
                for name in names
            ],
        }

    def _job_fields(self, gang: GangCourse, before: GangCourse | None, course: QueueCourse) -> Json:
        _, key = parse_gang_name(gang.name)
        found: dict[str, Json] = {
            "name": key.name,
            "namespace": key.namespace,
            "job": job_name_of_gang(gang.name, key.namespace),
            "state": self._state(gang.name),
            "endBasis": str(gang.basis),
            "isRough": gang.is_rough or gang.basis is Basis.ASSUMED,
            "stops": gang.stops,
            "sizes": [{"afterSeconds": round(each.at), "replicas": each.replicas} for each in gang.sizes],
        }
        if gang.starts_in is not None:
            found |= {"startsAt": format_time(self._at(gang.starts_in)), "startsInSeconds": round(gang.starts_in)}
        if gang.ends_in is not None:
            found |= {"endsAt": format_time(self._at(gang.ends_in)), "endsInSeconds": round(gang.ends_in)}
        if gang.is_waiting and gang.starts_in is None and course.cut_at is None and gang.wait is not None:
            found["neverStarts"] = {"code": gang.wait.code, "message": gang.wait.message}
        if (change := start_change(before, gang)) is not None:
            found["startChangeSeconds"] = round(change)
        if before is not None and before.ends_in is not None and gang.ends_in is not None:
            found["endChangeSeconds"] = round(gang.ends_in - before.ends_in)
        return found

    def _scenarios(self) -> Sequence[Scenario]:
        return [self.result.baseline, *self.result.scenarios]

    def _names(self) -> Sequence[str]:
        """Return the gangs to show: those that wait first, in the order of the queue."""
        courses = [scenario.course.gangs for scenario in self._scenarios()]
        names = dict.fromkeys(name for gangs in reversed(courses) for name in gangs)
        shown = [name for name in names if any(is_affected(None, gangs[name]) for gangs in courses if name in gangs)]
        return sorted(shown, key=lambda name: not any(gangs[name].is_waiting for gangs in courses if name in gangs))

    def _state(self, name: str) -> str:
        if name in self.result.submitted:
            return "Submitted"
        courses = [scenario.course.gangs[name] for scenario in self._scenarios() if name in scenario.course.gangs]
        if any(gang.is_waiting for gang in courses):
            return "Waiting"
        return "Displaced" if any(gang.displaced for gang in courses) else "Running"

    def _times(self, gang: GangCourse | None, course: QueueCourse) -> Sequence[str]:
        if gang is None:
            return ["-", "-"]
        return [self._start_text(gang, course), self._end_text(gang, course)]

    def _start_text(self, gang: GangCourse, course: QueueCourse) -> str:
        if not gang.is_waiting:
            return ", ".join(_size_texts(gang)) or "runs"
        if gang.starts_in is None:
            if course.cut_at is not None:
                return f"after {self._moment(course.cut_at)}"
            return f"never: {gang.wait.code}" if gang.wait is not None else "never"
        return self._moment(gang.starts_in, is_rough=gang.is_rough)

    def _end_text(self, gang: GangCourse, course: QueueCourse) -> str:
        if gang.ends_in is None:
            return "-" if course.cut_at is None else f"after {self._moment(course.cut_at)}"
        return self._moment(gang.ends_in, is_rough=gang.is_rough or gang.basis is Basis.ASSUMED)

    def _outcome(self, before: GangCourse | None, after: GangCourse, course: QueueCourse) -> str:
        """Say what becomes of the job, as a sentence without its subject's name."""
        if not after.is_waiting:
            return self._outcome_of_running(after, course)
        if after.starts_in is None:
            if course.cut_at is not None:
                return f"it would start after {self._moment(course.cut_at)}"
            reason = f": {after.wait.code}: {after.wait.message}" if after.wait is not None else ""
            return f"it would never start{reason}"
        change = start_change(before, after)
        text = "" if change is None else ", at the same time" if not change else f", {_relative(change)}"
        return f"it would start {self._when(after.starts_in, is_rough=after.is_rough)}{text}"

    def _outcome_of_running(self, after: GangCourse, course: QueueCourse) -> str:
        lost = f"{count(after.displaced, 'replica')} of it would lose the node" if after.displaced else ""
        sizes = ", ".join(_size_texts(after)) if len(after.sizes) > 1 else ""
        texts = list(filter(None, [lost, sizes and f"it would change: {sizes}"])) or ["it would run on as it does"]
        if after.ends_in is not None:
            is_rough = after.basis is Basis.ASSUMED
            texts.append(f"it would end {self._when(after.ends_in, is_rough=is_rough)}")
        elif course.cut_at is None:
            texts.append("no other node would ever have room for what it lost")
        return ", and ".join(texts) if len(texts) == 2 else ", ".join(texts)  # noqa: PLR2004 - a pair

    def _case(self, scenario: Scenario) -> str:
        text = self.result.asked.text
        policy = f"the policy were {scenario.policy}" if self.result.asked.policies else ""
        changed = f"the cluster were {text}" if text.startswith("without") else f"there were {text}" if text else ""
        return " and ".join(filter(None, [changed, policy]))

    def _waits(self, scenario: Scenario, but: str = "") -> str:
        """Say which jobs would wait longer or shorter, those with the greatest difference first."""
        found = changed_starts(self.result.baseline.course.gangs, scenario.course.gangs)
        changes = sorted((each for each in found if each.name != but), key=lambda each: -abs(each.seconds))
        never = [
            name
            for name, gang in scenario.course.gangs.items()
            if gang.is_waiting and gang.starts_in is None and scenario.course.cut_at is None and name != but
            if (before := self.result.baseline.course.gangs.get(name)) is not None and before.starts_in is not None
        ]
        longer = [each for each in changes if each.seconds > 0]
        shorter = [each for each in changes if each.seconds < 0]
        texts = [
            f"{count(len(group), 'job')} would wait {word}: "
            + joined(
                [f"{job_name_of_gang(each.name, self.namespace)} ({_span(abs(each.seconds))})" for each in group],
                MAX_NAMED,
            )
            for group, word in ((longer, "longer"), (shorter, "shorter"))
            if group
        ]
        if never:
            names = joined([job_name_of_gang(name, self.namespace) for name in never], MAX_NAMED)
            texts.append(f"{count(len(never), 'job')} would never start: {names}")
        return "".join(f"; {text}" for text in texts)

    def _run_times_text(self) -> str:
        numbers = self._bases()
        texts = []
        if known := numbers[Basis.WORK]:
            texts.append(f"{count(known, 'job')} by reports or by finished jobs of the same owner and template")
        if similar := numbers[Basis.SIMILAR_JOBS]:
            texts.append(f"{count(similar, 'job')} by the median of {count(self.result.finished, 'finished job')}")
        if assumed := numbers[Basis.ASSUMED]:
            given = self.result.asked.run_time
            rule = "as long as they have run, at least 20m" if given is None else f"{_span(given)} in all"
            texts.append(
                f"{count(assumed, 'job')} unknown, assumed to run on: {rule} (--run-time); "
                f"times that follow from this are marked {ROUGH}"
            )
        return f"run times: {'; '.join(texts) or 'no job runs or waits'}"

    def _bases(self) -> Mapping[Basis, int]:
        gangs = {name: gang for each in self._scenarios() for name, gang in each.course.gangs.items()}
        numbers = Counter(gang.basis for gang in gangs.values())
        return {basis: numbers[basis] for basis in Basis}

    def _at(self, seconds: float) -> dt.datetime:
        return self.now + dt.timedelta(seconds=seconds)

    def _moment(self, seconds: float, *, is_rough: bool = False) -> str:
        """Format a moment in a column: `12m (14:05)`."""
        mark = ROUGH if is_rough and seconds else ""
        return f"{mark}{_span(seconds)} ({self._clock(seconds)})" if seconds else "now"

    def _when(self, seconds: float, *, is_rough: bool) -> str:
        if not seconds:
            return "now"
        return f"at {ROUGH if is_rough else ''}{self._clock(seconds)} (in {_span(seconds)})"

    def _clock(self, seconds: float) -> str:
        at = self._at(seconds)
        return f"{at:%H:%M}" if at.date() == self.now.date() else f"{at:%b %d %H:%M}"


def _span(seconds: float) -> str:
    """Format a duration with at most two units: `45s`, `12m`, `3h20m`, `2d4h`."""
    whole = round(seconds)
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 2 * _HOUR:
        return f"{round(whole / _MINUTE)}m"
    big, small, length, part = ("d", "h", _DAY, _HOUR) if whole >= 2 * _DAY else ("h", "m", _HOUR, _MINUTE)
    units, rest = divmod(round(whole / part), length // part)
    return f"{units}{big}{rest}{small}" if rest else f"{units}{big}"


def _relative(seconds: float) -> str:
    return f"{_span(abs(seconds))} {'later' if seconds > 0 else 'earlier'}"


def _size_texts(gang: GangCourse) -> Iterator[str]:
    """Yield how the size of a running job changes, the first changes only."""
    changes = list(pairwise(gang.sizes))
    for before, after in changes[:2]:
        at = f"in {_span(after.at)}" if round(after.at) else "now"
        if not after.replicas:
            yield f"stops {at}"
        elif not before.replicas:
            yield f"starts again {at}"
        else:
            yield f"{before.replicas} -> {after.replicas} {at}"
    if len(changes) > 2:  # noqa: PLR2004 - as above
        yield "…"
    if not changes and gang.displaced:
        yield f"{count(gang.displaced, 'replica')} without a node"


def _change_text(before: GangCourse | None, after: GangCourse | None) -> str:
    """Say by how much the job starts at another time; of one that runs, by how much it ends at another."""
    if before is None or after is None:
        return "-"
    if after.is_waiting:
        change = start_change(before, after)
        if change is None:
            return "-"
        return "same" if not change else _relative(change)
    if before.ends_in is None or after.ends_in is None:
        return "-"
    change = after.ends_in - before.ends_in
    return "same" if abs(change) < _MINUTE else f"ends {_relative(change)}"


def _summary_text(course: QueueCourse, names: Sequence[str]) -> str:
    summary = summary_of(course, names)
    if not summary.waiting:
        return "no job waits"
    waiting, soon = count(summary.waiting, "waiting job"), summary.soon
    texts = [f"{soon or 'none'} of {waiting} {'start' if soon > 1 else 'starts'} within an hour"]
    if summary.never:
        texts.append(f"{summary.never} never")
    if summary.mean_wait is not None:
        texts.append(f"mean wait {_span(summary.mean_wait)}")
    if summary.mean_completion is not None:
        texts.append(f"mean end in {_span(summary.mean_completion)}")
    return ", ".join(texts)


def _seconds_field(name: str, seconds: float | None) -> Mapping[str, int]:
    return {} if seconds is None else {name: round(seconds)}
