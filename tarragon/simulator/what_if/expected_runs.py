"""Says how long each gang of a snapshot is expected to run, and on what that is based."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from tarragon.scheduling.api.snapshot import RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.api.work import UNKNOWN_WORK_SECONDS, WorkEstimate, devices_of, unknown_work
from tarragon.scheduling.explain.forecast import RunTimeModel
from tarragon.scheduling.state.size_steps import elastic_demand

Gang = WaitingGang | RunningGang

_MEDIAN = np.array([0.5])


class Basis(StrEnum):
    """What the end of a gang follows from."""

    WORK = "work"
    """The rest of its work, by its own reports or by finished jobs of its owner and template."""
    SIMILAR_JOBS = "similarJobs"
    """The median run time of finished jobs with a similar name, size or namespace, or of all."""
    ASSUMED = "assumed"
    """Nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRun:
    """What is left of a gang. Its `work.remaining` lasts as long as the gang's size makes it last."""

    work: WorkEstimate
    basis: Basis


def expected_runs(snapshot: Snapshot, outlook: RunTimeModel, assumed: float | None = None) -> Mapping[str, ExpectedRun]:
    """Return what is left of each gang, by name.

    A gang of which nothing is known lasts `assumed` seconds. Without that, or once it has run for longer, it is
    expected to run on for as long as it has run, and at least 20 minutes.
    """
    waiting = {gang.name: _expected_run(gang, snapshot, outlook, assumed) for gang in snapshot.waiting}
    return waiting | {gang.name: _expected_run(gang, snapshot, outlook, assumed) for gang in snapshot.running}


def size_of(gang: Gang) -> int:
    """Return the number of replicas by which the gang's speed is counted: those it runs with, or else requests."""
    demand = elastic_demand(gang.demands)
    if isinstance(gang, WaitingGang):
        return max(1, demand.requested)
    return max(1, sum(replica.type == demand.type and replica not in gang.displaced for replica in gang.nodes))


def _expected_run(gang: Gang, snapshot: Snapshot, outlook: RunTimeModel, assumed: float | None) -> ExpectedRun:
    if gang.work is not None and gang.work.is_known:
        return ExpectedRun(work=gang.work, basis=Basis.WORK)
    since = gang.admitted_at if isinstance(gang, RunningGang) else None
    age = 0.0 if since is None else max(0.0, (snapshot.now - since).total_seconds())
    seconds, basis = _seconds(outlook, gang.name, age), Basis.SIMILAR_JOBS
    if seconds is None:
        seconds, basis = _assumed_seconds(age, assumed), Basis.ASSUMED
    work = gang.work or _unknown(gang)
    return ExpectedRun(work=replace(work, remaining=seconds * work.curve.at(size_of(gang))), basis=basis)


def _seconds(outlook: RunTimeModel, name: str, age: float) -> float | None:
    """Return the median rest by finished gangs; None if there is none, or none of them has run for so long."""
    if not outlook.estimates.finished:
        return None
    rest = float(outlook.estimates.remaining(outlook.kinds_by_gang.get(name, ()), age, _MEDIAN)[0])
    return rest if np.isfinite(rest) else None


def _assumed_seconds(age: float, assumed: float | None) -> float:
    if assumed is not None and assumed > age:
        return assumed - age
    return max(age, UNKNOWN_WORK_SECONDS if assumed is None else 0.0)


def _unknown(gang: Gang) -> WorkEstimate:
    demand = elastic_demand(gang.demands)
    return unknown_work(max(1, demand.requested), devices_of(demand.resources))
