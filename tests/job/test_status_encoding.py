from __future__ import annotations

import datetime as dt
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job import training_operator_status
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.job.status import (
    Admission,
    AdmissionBackoff,
    Condition,
    DiscardedAdmission,
    FirstFailure,
    JobStatus,
    Obstacle,
    ReplicaStatus,
    RestartRecord,
    WaitReason,
)
from tarragon.job.status_encoding import (
    StatusSummary,
    decode_status,
    display_state,
    encode_admission,
    encode_status,
    recorded_status,
    unknown_fields,
)
from tarragon.kube.codec import encode
from tarragon.kube.meta import CustomObject

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
SUMMARY = StatusSummary(
    generation="kubeflow.org/v1", observed_generation=3, state="Running", total=4, workers=3, selector="a=b"
)


def written(status: JobStatus) -> Any:
    """The whole status as JSON would carry it."""
    fields: dict[str, Any] = {
        **training_operator_status.status_fields(None, status),  # type: ignore[arg-type]
        "tarragon": encode_status(status, SUMMARY),
    }
    if status.admission is not None:
        fields["tarragon"]["admission"] = encode_admission(status.admission)
    return json.loads(encode(fields))


def workers(*indexes: int) -> list[Replica]:
    return [Replica(WORKER, index) for index in indexes]


FULL = JobStatus(
    phase=Phase.RUNNING,
    conditions=(
        Condition(
            type="Running", is_true=True, reason="R", message="m", last_update_time=NOW, last_transition_time=NOW
        ),
    ),
    replica_statuses={PS: ReplicaStatus(active=1), WORKER: ReplicaStatus(active=2, succeeded=1, failed=3)},
    start_time=NOW,
    completion_time=NOW + dt.timedelta(hours=1),
    admission=Admission(
        queued_at=NOW + dt.timedelta(microseconds=7),
        admitted_at=NOW,
        size={PS: 1, WORKER: 3},
        nodes={Replica(PS, 0): "a", **dict(zip(workers(0, 1, 2), ["a", "b", "a"], strict=True))},
        wait=WaitReason(code="InsufficientResources", message="short of 2 nvidia.com/gpu", cause="Some"),
        backoff=AdmissionBackoff(attempts=3, not_before=NOW + dt.timedelta(minutes=4)),
        discarded=DiscardedAdmission(at=NOW, message="node a has no room for worker-0"),
    ),
    obstacle=Obstacle(since=NOW, reason="Refused", message="exceeded quota: q"),
    image_pull_errors={WORKER: "no such host"},
    restarts={
        Replica(WORKER, 0): RestartRecord(
            pod_restarts=2,
            disruptions=1,
            container_restarts=4,
            pod_uid="u",
            container_restarts_of_pod=1,
            is_pod_end_counted=True,
            exit_code=137,
            ended_at=NOW,
        ),
        Replica(WORKER, 2): RestartRecord(pod_restarts=1, reason="Evicted"),
        Replica(WORKER, 3): RestartRecord(rejections=2, rejected_by_node="n", is_pod_end_counted=True),
    },
    succeeded_replicas=frozenset({*workers(0, 1, 4), Replica(PS, 0)}),
    running_replicas=2,
    first_failure=FirstFailure(replica=Replica(WORKER, 2), exit_code=1, reason="Error", message="last words", at=NOW),
)


EMPTY = JobStatus(phase=Phase.RUNNING)


def test_what_is_written_is_read_again() -> None:
    assert decode_status(written(FULL)) == FULL
    assert decode_status(written(EMPTY)) == EMPTY


def test_what_a_later_version_wrote_beside_our_fields_is_told_apart_from_them() -> None:
    ours = {**encode_status(FULL, SUMMARY), "admission": {}}

    assert unknown_fields({**ours, "future": {"wings": 2}}) == {"future": {"wings": 2}}


def test_replicas_are_written_as_ranges_and_places_by_node() -> None:
    ours = written(FULL)["tarragon"]

    assert ours["finished"] == {"PS": "0", "Worker": "0-1,4"}
    assert ours["admission"]["nodes"] == {"PS": {"a": "0"}, "Worker": {"a": "0,2", "b": "1"}}
    assert (ours["ready"], ours["replicas"], ours["restarts"]["total"]) == ("2/4", 3, 7)


def test_nothing_in_a_status_is_null_for_a_merge_patch_would_delete_it() -> None:
    def nulls(value: Any) -> bool:
        if isinstance(value, dict):
            return any(nulls(each) for each in value.values())
        if isinstance(value, list):
            return any(nulls(each) for each in value)
        return value is None

    assert not nulls(written(FULL))
    assert not nulls(written(EMPTY))


def huge(number: int = 10_000) -> JobStatus:
    """As bad as it gets: one replica a node, each restarted at another second, half of them finished."""
    replicas = workers(*range(number))
    return JobStatus(
        admission=Admission(
            queued_at=NOW,
            admitted_at=NOW,
            size={WORKER: number},
            nodes={replica: f"ip-10-0-{replica.index:05}.internal" for replica in replicas},
        ),
        restarts={
            replica: RestartRecord(
                pod_restarts=1 + replica.index % 7,
                exit_code=137,
                reason="OOMKilled",
                ended_at=NOW + dt.timedelta(seconds=replica.index),
            )
            for replica in replicas
        },
        succeeded_replicas=frozenset(replicas[::2]),
    )


def test_ten_thousand_replicas_stay_well_below_what_etcd_takes() -> None:
    assert len(encode(written(huge()))) < 500_000


def test_ten_thousand_replicas_of_a_usual_cluster_are_small() -> None:
    replicas = workers(*range(10_000))
    nodes = {replica: f"gpu-node-{replica.index // 8:04}" for replica in replicas}
    status = JobStatus(admission=Admission(queued_at=NOW, admitted_at=NOW, size={WORKER: 10_000}, nodes=nodes))

    assert len(encode(written(status))) < 50_000


def test_of_very_many_restarts_all_counts_are_kept_and_the_latest_details() -> None:
    before = huge()
    after = decode_status(written(before))

    assert {replica: record.pod_restarts for replica, record in after.restarts.items()} == {
        replica: record.pod_restarts for replica, record in before.restarts.items()
    }
    assert after.restarts[Replica(WORKER, 9_999)] == before.restarts[Replica(WORKER, 9_999)]
    assert after.restarts[Replica(WORKER, 0)].ended_at is None


@pytest.mark.parametrize(
    ("name", "garbled"),
    [
        ("admission", 3),
        ("admission", {"queued": "yesterday"}),
        ("admission", {"queued": "2026-11-21T10:00:00Z", "size": {"Worker": -1}}),
        ("admission", {"queued": "2026-11-21T10:00:00Z", "size": {"Worker": 10**12}}),
        ("admission", {"queued": "2026-11-21T10:00:00Z", "nodes": {"Worker": {"a": "0-999999999"}}}),
        ("admission", {"queued": "2026-11-21T10:00:00Z", "nodes": {"A clown": {"a": "0"}}}),
        ("restarts", {"replicas": [{"count": 1}]}),
        ("restarts", {"replicas": [{"of": {"Worker": "0"}, "count": "many"}]}),
        ("finished", "0-3"),
        ("finished", {"Worker": "3-x"}),
        ("finished", {"Worker": "0-99999,0-99999"}),
        ("ready", {}),
        ("failure", {"replica": "worker-0"}),
    ],
)
def test_a_part_that_somebody_garbled_counts_as_absent_and_the_rest_is_read(name: str, garbled: Any) -> None:
    raw, without = written(FULL), written(FULL)
    raw["tarragon"][name] = garbled
    without["tarragon"].pop(name, None)

    assert decode_status(raw) == decode_status(without)
    assert decode_status(raw).replica_statuses == FULL.replica_statuses
    assert decode_status(raw).phase is Phase.RUNNING


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.sampled_from(["0-3", "Worker"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["of", "count", "Worker", "a", "type", "status", "queued", "size", "nodes", "wait", "code"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from([*encode_status(FULL, SUMMARY), "admission"]), json_values), json_values)
def test_no_status_whatsoever_raises(ours: dict[str, Any], other: Any) -> None:
    raw = {"conditions": other, "replicaStatuses": other, "startTime": other, "completionTime": other, "tarragon": ours}

    assert isinstance(decode_status(raw), JobStatus)
    assert isinstance(decode_status(other), JobStatus)


def test_each_job_is_read_as_what_is_on_its_record() -> None:
    records = [written(status) for status in (FULL, EMPTY, FULL, huge())]
    jobs = [CustomObject(raw_status=msgspec.Raw(encode(record))) for record in records]

    assert [recorded_status(job) for job in jobs * 2] == [decode_status(record) for record in records * 2]


@pytest.mark.parametrize(
    "raw", [b"null", b"5", b"{", b"[" * 5000, b'{"tarragon": ' + b'{"a": ' * 500 + b"1" + b"}" * 501]
)
def test_what_is_no_status_is_an_empty_record(raw: bytes) -> None:
    assert recorded_status(CustomObject(raw_status=msgspec.Raw(raw))) == JobStatus()


def test_a_few_bytes_that_name_very_many_replicas_are_not_kept_in_memory() -> None:
    forged = CustomObject(raw_status=msgspec.Raw(b'{"tarragon":{"finished":{"A":"0-9999"}}}'))

    assert recorded_status(forged).succeeded_replicas is not recorded_status(forged).succeeded_replicas


@pytest.mark.parametrize(
    ("true", "state", "phase"),
    [
        ([], None, Phase.CREATED),
        (["Created"], "Failed", Phase.CREATED),
        (["Created", "Running"], None, Phase.RUNNING),
        (["Created", "Restarting"], None, Phase.RESTARTING),
        (["Running", "Suspended"], None, Phase.SUSPENDED),
        (["Running", "Succeeded", "Failed"], None, Phase.FAILED),
        ([], "Succeeded", Phase.SUCCEEDED),
        ([], "Waiting", Phase.CREATED),
        ([], 3, Phase.CREATED),
    ],
)
def test_the_phase_is_what_the_conditions_say(true: list[str], state: Any, phase: Phase) -> None:
    conditions = [{"type": kind, "status": "True"} for kind in true]

    assert decode_status({"conditions": conditions, "tarragon": {"state": state}}).phase is phase


@pytest.mark.parametrize(
    ("phase", "waits", "word"),
    [
        (Phase.CREATED, True, "Waiting"),
        (Phase.CREATED, False, "Starting"),
        (Phase.RUNNING, False, "Running"),
        (Phase.RESTARTING, True, "Waiting"),
        (Phase.RESTARTING, False, "Restarting"),
        (Phase.SUSPENDED, True, "Suspended"),
        (Phase.SUCCEEDED, True, "Succeeded"),
        (Phase.FAILED, False, "Failed"),
    ],
)
def test_people_read_one_word(phase: Phase, waits: bool, word: str) -> None:  # noqa: FBT001 - a column of the table
    assert display_state(JobStatus(phase=phase), waits=waits) == word


@pytest.mark.parametrize("state", ["Succeeded", "Failed"])
@pytest.mark.parametrize("phase", ["CleanUp", "Done", "Failed"])
def test_an_end_that_an_operator_without_conditions_wrote_is_an_end(phase: str, state: str) -> None:
    found = {"conditions": None, "controlPaused": False, "phase": phase, "reason": "", "state": state}

    assert decode_status(found).phase is Phase(state)


@pytest.mark.parametrize(
    "found",
    [
        {"phase": "Running", "state": "Running"},
        {"phase": "Running", "state": "Failed"},
        {"phase": "Done", "state": "Running"},
        {"phase": "Done"},
        {"phase": ["Done"], "state": {"Succeeded": 1}},
        {"phase": "Done", "state": "Succeeded", "tarragon": {"state": "Running"}},
    ],
)
def test_what_such_an_operator_wrote_of_a_job_that_goes_on_is_no_end(found: dict[str, Any]) -> None:
    assert not decode_status(found).phase.is_final
