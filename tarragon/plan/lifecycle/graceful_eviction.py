"""Sending pods away: first a note for the program, which may save what it has done; the pod goes when its time is over.

Who is told, and until when, stands in the notes alone. So whoever comes after a crash neither tells a program twice nor
cuts its time short.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tarragon.job.annotations import LONGEST_SAVING, seconds_to_save
from tarragon.job.leaving import CHECKPOINT, LEAVING, asked_to_save_at, leaves_at, left_by_itself
from tarragon.job.member import Fate, main_status
from tarragon.kube.codec import timestamp
from tarragon.kube.core import PODS, Pod
from tarragon.plan.view.actions import Delete, Notice
from tarragon.plan.view.job_view import Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """A pod that is to go."""

    pod: Pod
    why: str
    may_save: bool = False
    """It would run on if its place had not been taken: then it is told before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """What is to be written now so that they go."""

    notices: Sequence[Notice] = ()
    deletes: Sequence[Delete] = ()
    again: dt.datetime | None = None
    """When the next of them is to be deleted."""


def leave(scene: Scene, doomed: Sequence[Doomed]) -> Leave:
    """Also takes back the notes of those that are to stay after all."""
    going = [each for each in doomed if not each.pod.metadata.is_ending]
    until = {each.pod.metadata.uid: _until(scene, each) for each in going}
    staying = [each for each in going if (at := until[each.pod.metadata.uid]) is not None and at > scene.now]
    told = [each for each in staying if _promised(scene, each.pod) is None]
    notices = [_told(scene, each, until[each.pod.metadata.uid]) for each in told]
    notices += _taken_back(scene, {each.pod.metadata.uid for each in doomed})
    return Leave(
        notices=[*notices, *_asked_to_save(scene, going, staying)],
        deletes=[delete_pod(each.pod, each.why) for each in going if each not in staying],
        again=min((at for at in until.values() if at is not None and at > scene.now), default=None),
    )


def delete_pod(pod: Pod, why: str) -> Delete:
    return Delete(
        resource=PODS,
        key=pod.metadata.key,
        uid=pod.metadata.uid,
        resource_version=pod.metadata.resource_version,
        reason=why,
    )


def _until(scene: Scene, doomed: Doomed) -> dt.datetime | None:
    """How long the pod goes on; None for at once. What it was told holds, whatever the job says now."""
    pod = doomed.pod
    if pod.status.phase != "Running" or left_by_itself(pod, main_status(pod, scene.framework.main_container)):
        return None
    promised = _promised(scene, pod)
    if promised is not None:
        return promised
    seconds = seconds_to_save(scene.job) if doomed.may_save else 0
    if not seconds:
        return None
    # A note has whole seconds: it promises none that the program does not have.
    return scene.now.replace(microsecond=0) + dt.timedelta(seconds=seconds + (scene.now.microsecond > 0))


def _promised(scene: Scene, pod: Pod) -> dt.datetime | None:
    """Nobody is promised more than the longest time that a job can ask for: such a note is somebody else's."""
    at = leaves_at(pod)
    return at if at is not None and at <= scene.now + dt.timedelta(seconds=LONGEST_SAVING + 1) else None


def _told(scene: Scene, doomed: Doomed, until: dt.datetime | None) -> Notice:
    notes = {CHECKPOINT: timestamp(scene.now), LEAVING: timestamp(until or scene.now)}
    return _notice(doomed.pod, notes, otherwise=delete_pod(doomed.pod, doomed.why))


def _taken_back(scene: Scene, going: set[str]) -> Iterator[Notice]:
    for member in scene.members.values():
        pod = member.pod
        if LEAVING in pod.metadata.annotations and pod.metadata.uid not in going and member.fate is Fate.GOES_ON:
            yield _notice(pod, {LEAVING: None, CHECKPOINT: None})


def _asked_to_save(scene: Scene, going: Sequence[Doomed], leaving: Sequence[Doomed]) -> Iterator[Notice]:
    """Whoever decides the job writes its checkpoints, usually: it is asked for one whenever somebody leaves."""
    member = scene.members.get(scene.job.chief) if scene.job.chief is not None else None
    if not leaving or member is None or not member.is_active:
        return
    if any(each.pod.metadata.uid == member.pod.metadata.uid for each in going):
        return
    latest = max(asked_to_save_at(each.pod) or scene.now.replace(microsecond=0) for each in leaving)
    before = asked_to_save_at(member.pod)
    if before is None or before < latest:
        yield _notice(member.pod, {CHECKPOINT: timestamp(latest)})


def _notice(pod: Pod, annotations: Mapping[str, str | None], otherwise: Delete | None = None) -> Notice:
    metadata = pod.metadata
    return Notice(
        pod=metadata.key,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        annotations=annotations,
        otherwise=otherwise,
    )
