"""What `tarragon why` says, from nothing but the job's status."""

from __future__ import annotations

import json
import venv
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tarragon.cli.explain.ending_pods import ending_lines
from tarragon.cli.explain.explanation import explanation_lines
from tarragon.cli.jobview.jobs import ClusterJob, read_job
from tarragon.cli.jobview.target import CommandPrefix
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.job import conditions
from tarragon.job.phase import Phase
from tarragon.job.status import (
    Admission,
    AdmissionBackoff,
    Condition,
    FirstFailure,
    JobStatus,
    Obstacle,
    RestartRecord,
    WaitReason,
)
from tarragon.kube.core import Pod
from tarragon.kube.meta import CustomObject, CustomObjectMeta, OwnerReference
from tests.cli.conftest import Shell
from tests.cli.manifests import python
from tests.cli.manifests import worker as worker_job
from tests.cli.scenes import BEGIN, at, pod, worker
from tests.frameworks.listed_jobs import cluster
from tests.operator.stage import group

PROMPT = CommandPrefix("tarragon", "default")
GOING = Admission(queued_at=BEGIN, admitted_at=BEGIN, size={WORKER: 2})


def said(condition: str, reason: str, message: str) -> Condition:
    return Condition(
        type=condition, is_true=True, reason=reason, message=message, last_update_time=BEGIN, last_transition_time=BEGIN
    )


def why(status: JobStatus) -> list[str]:
    metadata = CustomObjectMeta(name="digits", namespace="default", uid="u", creation_timestamp=BEGIN)
    found = CustomObject(api_version="kubeflow.org/v1", kind="TFJob", metadata=metadata)
    return list(
        explanation_lines(
            ClusterJob(framework=FRAMEWORKS[0], object=found, job=None, dialect=None, status=status), at(90), PROMPT
        )
    )


def why_of(replicas: dict[str, object], status: JobStatus) -> list[str]:
    metadata = CustomObjectMeta(name="digits", namespace="default", uid="u", creation_timestamp=BEGIN)
    spec = msgspec.Raw(json.dumps({"tfReplicaSpecs": replicas}))
    found = CustomObject(api_version="kubeflow.org/v1", kind="TFJob", metadata=metadata, raw_spec=spec)
    return list(explanation_lines(replace(read_job(FRAMEWORKS[0], found), status=status), at(90), PROMPT))


def test_of_a_job_that_trains_there_is_nothing_to_say() -> None:
    assert why(JobStatus(phase=Phase.RUNNING, admission=GOING)) == ["digits is Running; nothing is blocking it"]


def test_what_it_can_not_start_with_is_said_and_since_when() -> None:
    missing = Obstacle(since=BEGIN, reason="ImagePullBackOff", message="worker-1: not found")

    assert why(JobStatus(admission=GOING, obstacle=missing)) == [
        "digits is Starting: ImagePullBackOff: worker-1: not found",
        "  for 90s; if it lasts, the job releases its nodes and is requeued",
    ]


@pytest.mark.parametrize(
    ("message", "command"),
    [
        ('secret "hub" not found', "kubectl -n default create secret generic hub --from-literal KEY=VALUE"),
        ('MountVolume.SetUp failed: configmap "data.v1" not found', "kubectl -n default create configmap data.v1"),
        ('persistentvolumeclaim "data" not found', "kubectl -n default apply -f FILE, which has a Persist"),
        ('error looking up: serviceaccount "me" not found', "kubectl -n default create serviceaccount me"),
        ("couldn't find key token in Secret default/hub", "kubectl -n default edit secret hub"),
    ],
)
def test_of_an_object_that_is_missing_it_is_said_how_to_create_it(message: str, command: str) -> None:
    missing = Obstacle(since=BEGIN, reason="CreateContainerConfigError", message=f"worker-1: {message}")

    assert command in why(JobStatus(admission=GOING, obstacle=missing))[-1]


def test_one_that_waits_says_for_how_long_and_when_it_is_tried_again() -> None:
    wait = WaitReason(code="Refused", message="exceeded quota: q")
    waiting = Admission(queued_at=BEGIN, wait=wait, backoff=AdmissionBackoff(attempts=2, not_before=at(120)))

    assert why(JobStatus(admission=waiting)) == [
        "digits is Waiting: Refused: exceeded quota: q",
        "  in the queue for 90s",
        "  tried 2 times; next attempt at 2026-11-21T12:02:00Z",
    ]


def test_a_job_with_a_scheduler_of_its_own_waits_for_that_one() -> None:
    template = {"spec": {"schedulerName": "volcano", "containers": [python("pass")]}}
    spec = {"tfReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}}
    metadata = CustomObjectMeta(name="digits", namespace="default", uid="u", creation_timestamp=BEGIN)
    found = CustomObject(
        api_version="kubeflow.org/v1", kind="TFJob", metadata=metadata, raw_spec=msgspec.Raw(json.dumps(spec))
    )

    created = said(conditions.CREATED, "TFJobCreated", "TFJob digits is created")
    begun = replace(read_job(FRAMEWORKS[0], found), status=JobStatus(phase=Phase.CREATED, conditions=(created,)))
    running = replace(begun, status=JobStatus(phase=Phase.RUNNING))

    assert "waits" not in next(explanation_lines(running, at(90), PROMPT))
    assert next(explanation_lines(begun, at(90), PROMPT)) == (
        "digits is Waiting: waiting for the scheduler volcano (schedulerName of its pods); "
        "Tarragon does not schedule them"
    )


def test_a_job_with_a_list_that_kubectl_has_scaled_says_which_number_counts() -> None:
    scaled = cluster(workers=1, tfReplicaSpecs={"Worker": {"replicas": 3}})
    metadata = CustomObjectMeta(name="digits", namespace="default", uid="u", creation_timestamp=BEGIN)
    found = CustomObject(
        api_version="kubeflow.org/v1alpha1",
        kind="TFJob",
        metadata=metadata,
        raw_spec=msgspec.Raw(json.dumps(scaled["spec"])),
    )

    lines = list(explanation_lines(read_job(FRAMEWORKS[0], found), at(90), PROMPT))

    assert lines[1].startswith("  warning: spec.tfReplicaSpecs.Worker.replicas: is 3, set by `kubectl scale`")


def test_one_that_has_not_grown_says_why() -> None:
    not_grown = said(conditions.NOT_GROWN, "NeedsRestart", "1 of 2 replicas are scheduled: it waits")

    assert why(JobStatus(phase=Phase.RUNNING, admission=GOING, conditions=(not_grown,))) == [
        "digits is Running: NeedsRestart: 1 of 2 replicas are scheduled: it waits"
    ]


def test_one_that_others_made_smaller_says_since_when_and_why_and_why_it_does_not_grow_again() -> None:
    wait = WaitReason(code="BehindOthers", message="a job ahead of it in the queue waits for resources")
    size = {WORKER: 2}
    smaller = Admission(
        queued_at=BEGIN,
        admitted_at=BEGIN,
        size=size,
        resized_at=at(30),
        resize_reason="made room for TFJob default/big",
        wait=wait,
    )

    assert why(JobStatus(phase=Phase.RUNNING, admission=smaller)) == [
        "digits is Running; nothing is blocking it",
        "  it has had worker 2 for 60s: made room for TFJob default/big",
        "  it can't grow: BehindOthers: a job ahead of it in the queue waits for resources",
    ]


def test_an_elastic_one_that_began_small_says_when_it_grows() -> None:
    spec = {"tfReplicaSpecs": {"Worker": group(4)}, "min-instances": 1, "max-instances": 4}
    metadata = CustomObjectMeta(name="digits", namespace="default", uid="u", creation_timestamp=BEGIN)
    raw = msgspec.Raw(json.dumps(spec))
    found = CustomObject(api_version="kubeflow.org/v1", kind="TFJob", metadata=metadata, raw_spec=raw)
    status = JobStatus(phase=Phase.RUNNING, admission=GOING)

    assert list(explanation_lines(replace(read_job(FRAMEWORKS[0], found), status=status), at(90), PROMPT)) == [
        "digits is Running; nothing is blocking it",
        "  it started with worker 2 (4 requested), and grows when there is capacity that no waiting job needs",
    ]


def test_of_a_suspended_one_it_is_said_how_it_goes_on() -> None:
    resume = "tarragon resume digits"

    assert why(JobStatus(phase=Phase.SUSPENDED)) == [
        "digits is Suspended",
        f"  to resume it: {resume}",
    ]


KILLED = "what runs then is killed (terminationGracePeriodSeconds)"
REMOVE = "kubectl -n default delete pod digits-worker-0 --force"


def deleted(pod: Pod, *, until: float) -> Pod:
    """The pod of a job with the uid `u`, told to end until then."""
    owner = OwnerReference(api_version="kubeflow.org/v1", kind="TFJob", name="digits", uid="u", controller=True)
    metadata = msgspec.structs.replace(pod.metadata, owner_references=[owner], deletion_timestamp=at(until))
    return msgspec.structs.replace(pod, metadata=metadata)


def waits_for(
    pods: list[Pod], *, phase: Phase = Phase.RUNNING, is_local: bool = False, workers: int = 2, **metadata: Any
) -> list[str]:
    spec = msgspec.Raw(json.dumps({"tfReplicaSpecs": {"Worker": group(workers)}}))
    facts = CustomObjectMeta(name="digits", namespace="default", uid="u", creation_timestamp=BEGIN, **metadata)
    found = CustomObject(api_version="kubeflow.org/v1", kind="TFJob", metadata=facts, raw_spec=spec)
    job = replace(read_job(FRAMEWORKS[0], found), status=JobStatus(phase=phase, admission=GOING))
    return [*explanation_lines(job, at(90), PROMPT), *ending_lines(job, pods, at(90), is_local=is_local)]


def test_a_job_that_is_deleted_says_which_pods_still_end_and_until_when() -> None:
    pods = [deleted(pod(worker(index)), until=100 + index) for index in (1, 0)]

    assert waits_for(pods, deletion_timestamp=at(80)) == [
        "digits is Stopping: it is being deleted",
        f"  worker-0 and worker-1 still end, until 2026-11-21T12:01:41Z at the latest (in 11s): {KILLED}",
    ]


def test_a_pod_that_has_not_ended_in_time_is_named_with_what_removes_it() -> None:
    pods = [deleted(pod(worker(0)), until=30), deleted(pod(worker(1)), until=85)]

    assert waits_for(pods, deletion_timestamp=at(0)) == [
        "digits is Stopping: it is being deleted",
        f"  worker-1 still ends, until 2026-11-21T12:01:25Z at the latest (in 0s): {KILLED}",
        f"  worker-0 was to end 60s ago; if its node here is gone for good, remove its pod: {REMOVE}",
    ]


def test_of_many_pods_that_have_not_ended_in_time_the_first_are_named() -> None:
    pods = [deleted(pod(worker(index)), until=30) for index in range(2000)]

    lines = waits_for(pods, workers=2000, deletion_timestamp=at(0))

    assert [line.split()[0] for line in lines[1:]] == ["worker-0", "worker-1", "worker-2", "and"]
    assert lines[-1] == "  and 1997 more were to end by now: kubectl -n default get pods"


def test_on_this_machine_what_has_not_ended_in_time_is_ended_with_its_cluster() -> None:
    late = [deleted(pod(worker(index)), until=30) for index in range(2000)]

    (line,) = waits_for(late[:1], is_local=True, deletion_timestamp=at(0))[1:]
    (many,) = waits_for(late, is_local=True, workers=2000, deletion_timestamp=at(0))[1:]

    assert line.startswith("  worker-0 was to end 60s ago; `tarragon down` ends all that runs in the local cluster; ")
    assert many.startswith(
        "  worker-0, worker-1, worker-2 and 1997 more were to end by now, the first of them 60s ago; "
    )


def test_a_suspended_job_whose_pods_have_not_ended_names_them() -> None:
    assert waits_for([deleted(pod(worker(1)), until=100), pod(worker(0))], phase=Phase.SUSPENDED) == [
        "digits is Suspended",
        "  to resume it: tarragon resume digits",
        f"  worker-1 still ends, until 2026-11-21T12:01:40Z at the latest (in 10s): {KILLED}",
    ]


def test_a_job_without_pods_that_is_not_gone_names_the_finalizers_that_somebody_has_set() -> None:
    assert waits_for([], deletion_timestamp=at(80), finalizers=["foregroundDeletion"]) == [
        "digits is Stopping: it is being deleted"
    ]
    assert waits_for([], deletion_timestamp=at(80), finalizers=["foregroundDeletion", "example.com/audit"])[1:] == [
        "  its finalizers keep it: example.com/audit; whoever has set them must remove them"
    ]


def test_of_a_job_that_trains_no_pods_are_waited_for() -> None:
    assert waits_for([deleted(pod(worker(1)), until=100)]) == ["digits is Running; nothing is blocking it"]


def test_a_suspended_job_of_this_machine_says_that_its_replicas_still_end(shell: Shell) -> None:
    ignores_sigterm = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True)"
    name = shell.file("job.yaml", worker_job("digits", f"{ignores_sigterm}; time.sleep(60)"))
    shell("submit", name)
    following = shell.start("logs", "-f", "digits")
    following.until("here")
    shell("suspend", "digits")
    suspended = shell("why", "digits").out
    following.ended()

    assert "  worker-0 still ends, until " in suspended


def test_a_failure_is_told_with_its_last_lines_and_what_usually_helps() -> None:
    lines = "step 1\nModuleNotFoundError: No module named 'sklearn'"
    first = FirstFailure(replica=worker(1), exit_code=1, reason="Error", message=lines, at=BEGIN)
    reasons = why(JobStatus(phase=Phase.FAILED, first_failure=first))

    assert (
        reasons[0] == "digits is Failed: Error: worker-1: exit code 1: ModuleNotFoundError: No module named 'sklearn'"
    )
    assert "exit code 1: an error in the program" in reasons[1]
    assert reasons[2:4] == ["  │ step 1", "  │ ModuleNotFoundError: No module named 'sklearn'"]
    assert reasons[4].startswith("  Probably: the module sklearn is not installed")


def test_who_ran_out_of_the_memory_of_this_machine_is_not_told_to_raise_a_limit(shell: Shell) -> None:
    told = shell("run", shell.file("job.yaml", worker_job("digits", "raise MemoryError"))).out

    assert "use a smaller batch or fewer replicas: perhaps this machine had no more (`free -h`)" in told
    assert "of a script: --memory" in told
    assert "limits.memory" not in told


def test_the_remedy_names_the_environment_that_ran_the_replica_though_its_image_has_another_one_now(
    shell: Shell,
) -> None:
    used, other = shell.folder / "used", shell.folder / "other"
    for folder in (used, other):
        venv.create(folder, symlinks=True)
    images = shell.home / "images.yaml"
    images.parent.mkdir(parents=True, exist_ok=True)
    images.write_text(f"'*': {used}\n")
    assert shell("run", shell.file("job.yaml", worker_job("digits", "import no_such_module"))).code == 100

    images.write_text(f"'*': {other}\n")
    told = shell("why", "digits").out

    assert f"the module no_such_module is not installed in {used}, which ran this replica" in told
    assert f"{used}/bin/python" in told
    assert str(other) not in told


def test_it_is_told_when_the_cluster_is_not_there_any_more(shell: Shell) -> None:
    failing = worker_job("digits", "import sys; sys.exit('no data in /data')")
    assert shell("run", shell.file("job.yaml", failing)).code == 100
    shell("down")
    result = shell("why", "digits")

    assert result.code == 0
    assert result.out.startswith("digits is Failed: Error: worker-0: exit code 1: no data in /data\n")
    assert shell("why", "digit").code == 102


def test_a_job_that_can_never_fit_is_told_that_waiting_does_not_help() -> None:
    wait = WaitReason(code="NeverFits", message="no node is large enough for one worker")
    never = why(JobStatus(phase=Phase.CREATED, admission=Admission(queued_at=BEGIN, wait=wait)))

    assert "waiting does not help: lower the requests" in never[1]
    assert not any("in the queue" in line for line in never)


def test_what_a_killed_replica_said_last_is_no_cause_and_it_is_told_why_nothing_is_tried_again() -> None:
    lines = "step 0 loss 0.9\nstep 1 loss 0.5"
    first = FirstFailure(replica=worker(0), exit_code=137, reason="Error", message=lines, at=BEGIN)
    explanation = why_of({"Worker": group(1)}, JobStatus(phase=Phase.FAILED, first_failure=first))

    assert explanation[0] == "digits is Failed: Error: worker-0: exit code 137 (killed: SIGKILL; often out of memory)"
    assert explanation[1].endswith("killed (SIGKILL, 137): out of memory, kill -9, or the grace period expired")
    assert explanation[2].startswith("  It was not restarted because its restartPolicy is Never")
    assert explanation[3:5] == ["  │ step 0 loss 0.9", "  │ step 1 loss 0.5"]


LOST_CONNECTION = "\n".join(["UnavailableError: UNAVAILABLE: Connection reset by peer"] * 3)


def test_the_replica_is_named_whose_end_cost_the_others_their_connection() -> None:
    killed = RestartRecord(pod_restarts=1, exit_code=137, reason="Error", ended_at=at(2), finished_at=at(1))
    long_ago = RestartRecord(pod_restarts=1, exit_code=1, reason="Error", ended_at=at(-3600))
    first = FirstFailure(replica=worker(1), exit_code=1, reason="Error", message=LOST_CONNECTION, at=at(3))

    explanation = why(
        JobStatus(phase=Phase.FAILED, first_failure=first, restarts={worker(2): long_ago, worker(3): killed})
    )

    assert explanation[-2:] == [
        "  Probably: the replica could not reach another replica",
        (
            "    worker-3 ended first: it was killed (SIGKILL, 137), and was restarted; "
            "take addresses only from the variables that the operator sets"
        ),
    ]


def test_of_a_job_that_runs_again_the_last_restarts_are_told() -> None:
    killed = RestartRecord(container_restarts=1, exit_code=137, reason="Error", ended_at=at(30))
    failed = RestartRecord(container_restarts=2, exit_code=1, reason="Error", ended_at=at(60))

    assert why(JobStatus(phase=Phase.RUNNING, admission=GOING, restarts={worker(0): killed, worker(1): failed})) == [
        "digits is Running; nothing is blocking it",
        "  worker-1 was restarted 30s ago, as it failed with exit code 1",
        "  worker-0 was restarted 60s ago, as it was killed (SIGKILL, 137)",
    ]


@pytest.mark.parametrize(
    ("replicas", "policy"),
    [({"Worker": group(4)}, "OnFailure"), ({"PS": group(1), "Worker": group(4)}, "ExitCode")],
    ids=["trains collectively", "has parameter servers"],
)
def test_a_restart_policy_is_named_with_which_the_job_survives_a_killed_worker(
    replicas: dict[str, object], policy: str
) -> None:
    first = FirstFailure(replica=worker(3), exit_code=137, reason="Error", message="", at=BEGIN)

    explanation = why_of(replicas, JobStatus(phase=Phase.FAILED, first_failure=first))

    assert explanation[2] == (
        f"  It was not restarted because its restartPolicy is Never; {policy} restarts after such an end: "
        f"--set spec.tfReplicaSpecs.Worker.restartPolicy={policy}, or this field in the manifest."
    )


@pytest.mark.parametrize(
    "wait",
    [
        WaitReason(code="NeverFits", message="worker: node a: it has no label disk=ssd", cause="NoEligibleNode"),
        WaitReason(code="NeverFits", message="no node may run a worker: node a: it has no label disk=ssd"),
    ],
    ids=["with its cause", "of an earlier operator"],
)
def test_a_job_that_no_node_may_run_is_not_told_to_ask_for_less(wait: WaitReason) -> None:
    never = why(JobStatus(phase=Phase.CREATED, admission=Admission(queued_at=BEGIN, wait=wait)))

    assert "correct the manifest, or make a node match the pods" in never[1]


def test_who_needs_memory_of_gpus_of_which_no_node_says_how_much_is_told_how_nodes_can_say_it() -> None:
    wait = WaitReason(code="NeverFits", message="no node says how much its GPUs have", cause="GpuMemoryUnknown")
    never = why(JobStatus(phase=Phase.CREATED, admission=Admission(queued_at=BEGIN, wait=wait)))

    assert never[1].endswith("in MiB: kubectl label node NODE nvidia.com/gpu.memory=16384")


def test_a_job_that_succeeded_is_not_said_to_go_on() -> None:
    assert why(JobStatus(phase=Phase.SUCCEEDED)) == ["digits is Succeeded: there is nothing to explain"]


@pytest.mark.parametrize(
    "wait",
    [
        WaitReason(code="QueueQuotaExceeded", message="the job alone needs 5 cpu", cause="LargerThanQuota"),
        WaitReason(code="QueueQuotaExceeded", message="waiting does not help: the job alone needs 5 cpu"),
    ],
    ids=["with its cause", "of an earlier operator"],
)
def test_a_job_that_is_larger_than_its_quota_is_told_what_to_do_and_has_no_place_in_the_queue(wait: WaitReason) -> None:
    never = why(JobStatus(phase=Phase.CREATED, admission=Admission(queued_at=BEGIN, wait=wait)))

    assert "raise the quota of its namespace" in never[1]
    assert not any("in the queue" in line for line in never)
