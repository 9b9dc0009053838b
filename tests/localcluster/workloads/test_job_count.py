"""A job counts each pod exactly once and never has too many, even if its controller is killed between two writes."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass, field

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.kube.merge_patch import apply_merge_patch
from tarragon.kube.meta import ObjectMeta
from tarragon.localcluster.controllers.workloads import job_plan
from tarragon.localcluster.controllers.workloads.job_count import INDEX, TRACKING, count, parse_indexes
from tarragon.localcluster.controllers.workloads.model import Job, JobSpec, Json
from tarragon.localcluster.controllers.workloads.pods import ContainerStatus, Pod, PodStatus, State, Terminated

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@dataclass
class Stage:
    """A simulated job with its pods. `ended` has the actual results of pods, by uid."""

    spec: JobSpec
    dice: random.Random
    status: Json = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    seconds: int = 0
    made: int = 0

    @property
    def now(self) -> dt.datetime:
        return BEGIN + dt.timedelta(seconds=self.seconds)

    @property
    def job(self) -> Job:
        return Job(metadata=ObjectMeta(name="j", uid="j"), spec=self.spec, status=self.status)

    @property
    def active(self) -> int:
        return sum(pod.is_active for pod in self.pods.values())

    def look(self) -> None:
        """A reconciliation by the controller, which may be killed at any write."""
        self.seconds += 1
        job, pods = self.job, list(self.pods.values())
        counted = count(job, pods)
        ends = job_plan.verdict(job, pods, counted, self.now)
        status = job_plan.status(job, pods, counted, ends, self.now)
        if apply_merge_patch(self.status, status) != self.status:
            if self.is_killed():
                return
            self.status = apply_merge_patch(self.status, status)
        for pod in counted.release:
            if self.is_killed():
                return
            self.release(pod)
        if not job.is_finished:
            self.act(job_plan.plan(job, pods, counted, ends, self.now))

    def act(self, plan: job_plan.Plan) -> None:
        for pod in plan.surplus:
            self.release(pod)
        for pod in [*plan.surplus, *plan.stop]:
            self.delete(pod)
        for index in plan.create:
            if self.is_killed():
                return
            self.make(index)

    def is_killed(self) -> bool:
        return self.dice.random() < 0.2

    def make(self, index: int | None) -> None:
        self.made += 1
        uid = f"u{self.made}"
        annotations = {} if index is None else {INDEX: str(index)}
        metadata = ObjectMeta(
            name=uid, uid=uid, creation_timestamp=self.now, finalizers=[TRACKING], annotations=annotations
        )
        self.pods[uid] = Pod(metadata=metadata, status=PodStatus(phase="Running"))

    def release(self, pod: Pod) -> None:
        now = self.pods.get(pod.uid)
        if now is not None:
            self.pods[pod.uid] = msgspec.structs.replace(
                now, metadata=msgspec.structs.replace(now.metadata, finalizers=[])
            )
            self.tidy(pod.uid)

    def delete(self, pod: Pod) -> None:
        now = self.pods.get(pod.uid)
        if now is not None and not now.metadata.is_being_deleted:
            metadata = msgspec.structs.replace(now.metadata, deletion_timestamp=self.now)
            self.pods[pod.uid] = msgspec.structs.replace(now, metadata=metadata)
            if TRACKING in now.metadata.finalizers:
                self.ended.setdefault(pod.uid, "failed" if now.status.phase != "Succeeded" else "succeeded")
            self.tidy(pod.uid)

    def tidy(self, uid: str) -> None:
        """Remove a pod that is deleted and has no finalizers."""
        pod = self.pods[uid]
        if pod.metadata.is_being_deleted and not pod.metadata.finalizers:
            del self.pods[uid]

    def end_one(self) -> None:
        running = [pod for pod in self.pods.values() if pod.is_active]
        if running:
            pod = self.dice.choice(running)
            phase = "Succeeded" if self.dice.random() < 0.6 else "Failed"
            self.ended[pod.uid] = phase.lower()
            state = State(terminated=Terminated(exit_code=phase == "Failed", finished_at=self.now))
            status = PodStatus(phase=phase, container_statuses=[ContainerStatus(name="main", state=state)])
            self.pods[pod.uid] = msgspec.structs.replace(pod, status=status)

    def delete_one(self) -> None:
        if self.pods:
            self.delete(self.pods[self.dice.choice(sorted(self.pods))])

    def wait(self) -> None:
        self.seconds += 300

    def suspend(self) -> None:
        self.spec = msgspec.structs.replace(self.spec, suspend=not self.spec.suspend)


SPECS = st.builds(
    JobSpec,
    parallelism=st.integers(1, 4),
    completions=st.integers(1, 6),
    backoff_limit=st.integers(0, 20),
    completion_mode=st.sampled_from(["NonIndexed", "Indexed"]),
)


@settings(max_examples=200)
@given(SPECS, st.integers(0, 2**32))
def test_each_pod_counts_once_and_parallelism_is_never_exceeded(spec: JobSpec, seed: int) -> None:
    stage = Stage(spec, random.Random(seed))
    acts = [stage.look, stage.look, stage.look, stage.end_one, stage.delete_one, stage.wait, stage.suspend]
    for _ in range(150):
        stage.dice.choice(acts)()
        assert stage.active <= spec.parallelism
    stage.spec = msgspec.structs.replace(stage.spec, suspend=False)
    for _ in range(600):
        stage.dice.choice([stage.look, stage.end_one, stage.wait])()

    assert stage.job.is_finished
    assert int(stage.status.get("failed") or 0) == list(stage.ended.values()).count("failed")
    succeeded = int(stage.status.get("succeeded") or 0)
    if spec.is_indexed:
        assert len(parse_indexes(stage.status.get("completedIndexes") or "")) == succeeded
    else:
        assert succeeded == list(stage.ended.values()).count("succeeded")
    if stage.job.has("Complete"):
        assert succeeded == spec.completions
    assert not any(TRACKING in pod.metadata.finalizers for pod in stage.pods.values())


def test_the_pause_doubles_with_each_failure_since_the_last_success() -> None:
    stage = Stage(JobSpec(), random.Random(1))
    pauses = []
    for _ in range(4):
        stage.make(None)
        uid = f"u{stage.made}"
        state = State(terminated=Terminated(exit_code=1, finished_at=stage.now))
        status = PodStatus(phase="Failed", container_statuses=[ContainerStatus(name="main", state=state)])
        stage.pods[uid] = msgspec.structs.replace(stage.pods[uid], status=status)
        pauses.append(job_plan.pause_after_failures(stage.job, list(stage.pods.values()), stage.now))

    assert pauses == [10, 20, 40, 80]
