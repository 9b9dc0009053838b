"""What the simulator reads: clusters, traces and measured speeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tarragon.base.errors import TarragonError
from tarragon.simulator.engine import SimulatedCluster
from tarragon.simulator.traces.clusters import read_cluster
from tarragon.simulator.traces.reading import Selection, read_speeds, read_workloads
from tarragon.simulator.workload import TrainingJob, with_bounds

KUBECTL = """
apiVersion: v1
kind: List
items:
- metadata: {name: a}
  status: {allocatable: {cpu: "8", nvidia.com/gpu: "4", hugepages-2Mi: "0"}}
- metadata: {name: drained}
  spec: {unschedulable: true}
  status: {allocatable: {nvidia.com/gpu: "4"}}
- metadata: {name: without}
  status: {allocatable: {cpu: "8"}}
"""


def file(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def jobs(tmp_path: Path, text: str, selection: Selection | None = None) -> Sequence[TrainingJob]:
    [found] = read_workloads(file(tmp_path, "jobs.csv", text), selection or Selection())
    return found.jobs


@pytest.mark.parametrize(
    ("name", "text", "capacities"),
    [
        ("c.yaml", "[{count: 2, gpus: 8}]", {"group-0-00000": 8, "group-0-00001": 8}),
        ("c.yaml", "- {name: a100, resources: {nvidia.com/gpu: 4, cpu: 32}}", {"a100-00000": 4}),
        ("c.yaml", KUBECTL, {"a": 4}),
        ("c.csv", "name,gpus\na,4\nb,0\n", {"a": 4}),
        ("c.csv", "sn,cpu_milli,gpu\na,32000,8\n", {"a": 8}),
    ],
)
def test_a_cluster_is_read_from_groups_from_nodes_of_kubectl_and_from_csv(
    tmp_path: Path, name: str, text: str, capacities: dict[str, int]
) -> None:
    assert read_cluster(file(tmp_path, name, text)).capacities == capacities


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("c.yaml", "[{count: 2}]", "no node of .* has a GPU"),
        ("c.yaml", "[{count: many, gpus: 1}]", "entry 1 of .*"),
        ("c.yaml", "[{gpu: 1}]", "entry 1 of .*"),
        ("c.yaml", "[{gpus: 1}, 5]", "entry 2 of .*"),
        ("c.yaml", "[{resources: {nvidia.com/gpu: x}}]", "entry 1 of .*"),
        ("c.yaml", "[", "can't read"),
        ("c.csv", "a,b\n1,2\n", "has no nodes"),
    ],
)
def test_a_cluster_that_cannot_be_read_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(TarragonError, match=said):
        read_cluster(file(tmp_path, name, text))


def test_nodes_of_different_sizes_have_room_for_whole_replicas_only() -> None:
    cluster = SimulatedCluster({"a": 3, "b": 8, "c": 4})

    assert (cluster.devices, cluster.room(1), cluster.room(2), cluster.room(4)) == (15, 15, 7, 3)
    assert [cluster.fewest_nodes(size) for size in (1, 8, 9, 12, 13, 15, 16, 23, 24)] == [1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert [cluster.fewest_nodes(size, 4) for size in (1, 2, 3)] == [1, 1, 2]


def test_a_trace_may_say_the_gpus_of_a_replica_and_the_bounds_of_a_job(tmp_path: Path) -> None:
    rows = "name,submit_s,replicas,duration_s,gpus,minimum,maximum\na,0,4,60,2,1,6\nb,0,3,60,,,\n"

    found = [with_bounds(each, "trace") for each in jobs(tmp_path, rows)]

    assert [(each.devices, each.minimum, each.requested, each.maximum) for each in found] == [
        (2, 1, 4, 6),
        (1, 3, 3, 3),
    ]
    assert 1 / found[0].speed.at(2, 8) == pytest.approx(60)


def test_measured_rates_are_the_speeds_of_jobs_of_that_kind(tmp_path: Path) -> None:
    rates = file(tmp_path, "rates.csv", "kind,replicas,rate\nbert,1,100\nbert,4,300\n")
    selection = Selection(speeds=read_speeds(rates, "fixed"))
    rows = "name,submit_s,replicas,duration_s,kind,gpus\na,0,4,600,bert,2\nb,0,4,600,other,2\n"

    measured, other = jobs(tmp_path, rows, selection)

    assert [1 / measured.speed.at(1, devices) for devices in (2, 8, 16)] == pytest.approx([1800, 600, 600])
    assert 1 / other.speed.at(1, 2) == pytest.approx(600 * (0.05 + 0.95 / 2) / (0.05 + 0.95 / 8))


def test_a_measured_rate_of_zero_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TarragonError) as caught:
        read_speeds(file(tmp_path, "rates.csv", "kind,replicas,rate\nbert,1,0\n"), "fixed")

    assert "line 2: rate '0' is no speed" in caught.value.cause


def test_pods_of_openb_that_ran_on_gpus_are_jobs_of_one_replica(tmp_path: Path) -> None:
    rows = (
        "name,cpu_milli,num_gpu,gpu_milli,qos,creation_time,duration_s\n"
        "part,1000,1,460,LS,5,100\nwhole,1000,8,1000,BE,7,200\ncpu,1000,0,0,LS,9,100\nnever,1000,1,1000,LS,9,\n"
    )

    found = jobs(tmp_path, rows)

    assert [(each.name, each.submitted_at, each.requested, each.devices) for each in found] == [
        ("part", 5, 1, 1),
        ("whole", 7, 1, 8),
    ]
    assert 1 / found[1].speed.at(1, 8) == pytest.approx(200)
