"""What people see of GPUs that jobs share: in lists, descriptions, `why`, `top` and `check`."""

from __future__ import annotations

import csv
import dataclasses
import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tarragon.base.resources import CPU, NVIDIA_GPU
from tarragon.cli.checks import machine
from tarragon.cli.explain.queue_status import QueueStatus, queue_status
from tarragon.cli.explain.what_if import BadChange, added_nodes, ask_what_if, what_if_of_pairs
from tarragon.cli.jobview.gpus import count_of_gpus, gpus_of_pod, json_number, part_of_gpu
from tarragon.cli.jobview.jobs import ClusterJob, find_job, read_job
from tarragon.cli.jobview.rows import gpus
from tarragon.cli.manifest.loading import LoadedJob
from tarragon.cli.manifest.sizing import is_large, size_table, training_jobs
from tarragon.cli.output.style import uncolored
from tarragon.cli.simulation.finished_jobs import trace_of
from tarragon.cli.targets.embedded import EmbeddedTarget
from tarragon.cli.top.job_rows import filter_and_sort, job_row
from tarragon.cli.top.node_rows import NodeRequests, NodeRow, node_rows
from tarragon.cli.top.page import render_page
from tarragon.cli.top.page_state import PageState
from tarragon.cli.top.view import Frame, ReplicaRow, View
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.codec import decode
from tarragon.kube.core import (
    NAMESPACES,
    NODES,
    PODS,
    Container,
    Node,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from tarragon.kube.meta import CustomObject, Key, ObjectMeta
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.kubelet.devices import gpu_limits
from tarragon.localcluster.kubelet.node import machine as local_machine
from tarragon.localcluster.kubelet.node.machine import MachineGpus
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.plan.objects.gpu_anchors import AnchorSettings
from tarragon.plan.objects.settings import OperatorSettings
from tests.cli.conftest import Shell
from tests.operator.stage import Stage, a_stage, group, job

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
GIB = 2**30


def share(request: str, memory: int | None = None) -> dict[str, str]:
    amount = {} if memory is None else {"kubeshare/gpu_mem": str(memory)}
    return {"kubeshare/gpu_request": request, "kubeshare/gpu_limit": "1.0", **amount}


def sharing(replicas: int, request: str, memory: int | None = None) -> dict[str, Any]:
    """A group whose replicas need such a part of a GPU each."""
    found = group(replicas, cpu="100m", memory="64Mi")
    found["template"]["metadata"] = {"annotations": share(request, memory)}
    return found


def read(name: str, **spec: Any) -> ClusterJob:
    return read_job(FRAMEWORKS[0], decode(json.dumps(job(name, **spec)), CustomObject))


def pod(name: str, annotations: Mapping[str, str], requests: Mapping[str, str] = {}) -> Pod:
    container = Container(resources=ResourceRequirements(requests=dict(requests)))
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", annotations=dict(annotations)),
        spec=PodSpec(node_name="a", containers=[container]),
        status=PodStatus(phase="Running"),
    )


def placed(name: str, request: str, number: int, memory: int | None = None, gpu: str = "") -> Pod:
    uuid = {"tarragon.dev/gpu-uuid": gpu} if gpu else {}
    return pod(name, {**share(request, memory), "tarragon.dev/vgpu": str(number), **uuid}, {"cpu": "100m"})


@pytest.mark.parametrize(
    ("replicas", "request_", "text"), [(4, "0.5", "2"), (1, "0.5", "0.5"), (3, "0.25", "0.75"), (1, "0.001", "0.001")]
)
def test_a_list_counts_parts_of_gpus(replicas: int, request_: str, text: str) -> None:
    assert gpus(read("job", Worker=sharing(replicas, request_))) == text


def test_whole_gpus_are_listed_as_ever_and_those_who_need_none_have_a_dash() -> None:
    whole = group(2, **{NVIDIA_GPU: "4"})

    assert gpus(read("job", Worker=whole, PS=group(1))) == "8"
    assert gpus(read("job", Chief=sharing(1, "0.5"), Worker=whole)) == "8.5"
    assert gpus(read("job", Worker=group(2))) == "-"


def test_programs_read_whole_numbers_where_there_are_no_parts() -> None:
    assert [json.dumps(json_number(number)) for number in (2000, 500, 0)] == ["2", "0.5", "0"]
    assert [count_of_gpus(number) for number in (1000, 500, 2500)] == ["1 GPU", "0.5 GPUs", "2.5 GPUs"]


def test_jobs_are_sorted_by_parts_of_gpus_too() -> None:
    jobs = [job_row(read(name, Worker=sharing(1, part))) for name, part in (("small", "0.3"), ("large", "0.7"))]

    assert [each.name for each in filter_and_sort(jobs, "", "gpus", is_reversed=False)] == ["large", "small"]


def test_what_a_job_requests_is_shown_with_its_parts_of_gpus_before_it_is_submitted() -> None:
    body = job("digits", Worker=sharing(4, "0.5"))
    jobs = training_jobs([LoadedJob(framework=FRAMEWORKS[0], job=body, companions=(), notes=())])
    header, row, total, hours = size_table(jobs)

    assert header.split()[-1] == "GPUS"
    assert (row.split()[-1], total.split()[-1]) == ("0.5", "2")
    assert hours == ("2 GPUs: 2 GPU-hours per hour, without a limit (set runPolicy.activeDeadlineSeconds)")
    assert (is_large(jobs, 1), is_large(jobs, 2)) == (True, False)


@pytest.mark.parametrize(
    ("annotations", "limits", "gpus_of_replica"),
    [(share("0.5"), {}, "1"), ({}, {"nvidia.com/gpumem": "4000"}, "1"), ({}, {NVIDIA_GPU: "3"}, "3")],
)
def test_in_a_trace_a_part_of_a_gpu_counts_as_one(
    annotations: dict[str, str], limits: dict[str, str], gpus_of_replica: str
) -> None:
    worker = group(2, **limits)
    worker["template"]["metadata"] = {"annotations": annotations}
    body = job("old", Worker=worker)
    body["metadata"] |= {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    body["status"] = {
        "startTime": "2026-01-01T00:00:00Z",
        "completionTime": "2026-01-01T01:00:00Z",
        "conditions": [{"type": "Succeeded", "status": "True", "lastTransitionTime": "2026-01-01T01:00:00Z"}],
        "tarragon": {"phase": "Succeeded"},
    }
    (row,) = csv.DictReader(trace_of([read_job(FRAMEWORKS[0], decode(json.dumps(body), CustomObject))]).splitlines())

    assert row["gpus"] == gpus_of_replica


def test_a_pod_has_a_part_of_a_vgpu_with_its_gpu_and_memory() -> None:
    long = "GPU-1f2b3c4d-0000-0000-0000-000000000000"

    assert gpus_of_pod(placed("p", "0.5", 0, 3189243904, long), 0) == "0.5 of vGPU 0 (GPU-1f2b3c4d…, 2.97Gi)"
    assert gpus_of_pod(placed("p", "0.25", 3, gpu="1"), 16 * GIB) == "0.25 of vGPU 3 (GPU 1, 4Gi)"
    assert gpus_of_pod(placed("p", "0.25", 3), 0) == "0.25 of vGPU 3"
    assert gpus_of_pod(pod("p", share("0.25")), 0) == "0.25 of a GPU"
    assert gpus_of_pod(pod("p", {}, {NVIDIA_GPU: "2"}), 16 * GIB) == "2 GPUs"
    assert (gpus_of_pod(pod("p", {}, {"cpu": "1"}), 0), part_of_gpu(pod("p", {}, {"cpu": "1"}))) == ("", "")


def machine_row(*pods: Pod) -> NodeRow:
    node = Node(metadata=ObjectMeta(name="a"), status=NodeStatus(allocatable={"cpu": "4", NVIDIA_GPU: 4, "pods": 10}))
    requests = NodeRequests()
    for each in pods:
        requests.update(None, each)
    (row,) = node_rows([node], requests, {})
    return row


def test_a_node_counts_whole_gpus_and_parts_together() -> None:
    row = machine_row(
        placed("b", "0.5", 0), placed("c", "0.25", 0, 2 * GIB), placed("a", "0.5", 1), pod("w", {}, {NVIDIA_GPU: "2"})
    )

    assert (row.gpus, row.cpu) == ("3.25/4", "0.3/4")
    assert row.shared_gpus == "0: b 0.5, c 0.25; 1: a 0.5"


def test_a_part_of_a_gpu_is_free_again_when_its_pod_has_ended() -> None:
    running = placed("b", "0.5", 0)
    over = Pod(metadata=running.metadata, spec=running.spec, status=PodStatus(phase="Succeeded"))
    node = Node(metadata=ObjectMeta(name="a"), status=NodeStatus(allocatable={NVIDIA_GPU: 4}))
    requests = NodeRequests()
    requests.update(None, running)
    requests.update(running, over)
    (row,) = node_rows([node], requests, {})

    assert (row.gpus, row.shared_gpus) == ("0/4", "")


def test_an_anchor_takes_no_gpu_from_those_for_which_it_holds_one() -> None:
    anchor = pod("tarragon-gpu-a-0", {"tarragon.dev/vgpu": "0"}, {NVIDIA_GPU: "1", "cpu": "20m"})
    labelled = replace(anchor, metadata=replace(anchor.metadata, labels={"tarragon.dev/gpu-anchor": "true"}))
    row = machine_row(labelled, placed("b", "0.5", 0))

    assert (row.gpus, row.cpu, row.shared_gpus) == ("0.5/4", "0.12/4", "0: b 0.5")


def page(replicas: list[ReplicaRow], nodes: list[NodeRow]) -> list[str]:
    entry = job_row(read("digits", Worker=sharing(1, "0.5")))
    view = View(target="local", namespace="", entries=[entry], index_of={entry.key: 0}, replicas=replicas, nodes=nodes)
    frame = Frame(width=120, height=30, now=NOON)
    return render_page(view, PageState(job=entry.key), frame, uncolored)


def test_the_page_of_top_shows_who_shares_what_only_where_somebody_does() -> None:
    alone = NodeRow(name="b", state="Ready", allocatable={CPU: 4000}, requested={})
    plain = ReplicaRow(name="ps-0", type="ps", state="Running", state_text="Running", restarts=0, node="a")
    part = ReplicaRow(
        name="worker-0", type="worker", state="Running", state_text="Running", restarts=0, node="a",
        gpu="0.5 of vGPU 0", last_line="step 1",
    )  # fmt: skip

    shown = page([plain, part], [machine_row(placed("b", "0.5", 0)), alone])
    assert [row for row in shown if "REPLICA" in row][-1].split() == [
        *("REPLICA", "STATE", "RESTARTS", "NODE", "GPU", "LAST", "LINE"),
    ]
    assert next(row for row in shown if row.startswith("  worker-0")).endswith("a     0.5 of vGPU 0  step 1")
    assert next(row for row in shown if "NODE " in row and "STATE" in row and "PODS" in row).endswith("SHARED GPUS")
    assert next(row for row in shown if row.startswith("  a ")).endswith("0: b 0.5")
    assert "0.5" in next(row for row in shown if row.startswith("> digits")).split()

    without = "\n".join(page([plain], [alone]))
    assert "SHARED GPUS" not in without
    assert "GPU " not in without.replace("GPUS", "")


def test_nodes_that_are_only_supposed_may_say_how_much_memory_their_gpus_have() -> None:
    found = added_nodes("2xnvidia.com/gpu=2,gpu-memory=16Gi,cpu=8")

    assert (found.amounts, found.gpu_memory) == ({NVIDIA_GPU: "2", "cpu": "8"}, "16Gi")
    assert found.text == "2 more nodes with 2 nvidia.com/gpu of 16Gi each, 8 cpu"


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("2xcpu=8,gpu-memory=16Gi", "gpu-memory: the node has no GPUs, in '2xcpu=8,gpu-memory=16Gi'"),
        (
            "1xnvidia.com/gpu=1,gpu-memory=16",
            "gpu-memory: must be 1Mi or more, such as 16Gi, not 16, in '1xnvidia.com/gpu=1,gpu-memory=16'",
        ),
        (
            "1xnvidia.com/gpu=1,gpu-memory=x",
            "'gpu-memory=x' in '1xnvidia.com/gpu=1,gpu-memory=x' is not an amount of a resource",
        ),
    ],
)
def test_memory_of_gpus_that_can_not_be_is_a_bad_argument(text: str, summary: str) -> None:
    with pytest.raises(BadChange) as caught:
        added_nodes(text)

    assert caught.value.summary == summary
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("memory", "pipes", "text"),
    [
        ({}, None, "2 GPUs of unknown memory; no CUDA MPS daemon, so shares are only advice to programs "),
        ({"GPU-a": 40960, "GPU-b": 40960}, Path("/run/mps"), "2 GPUs of 40 GiB; CUDA MPS (/run/mps) limits programs"),
        ({"GPU-a": 81559, "GPU-b": 40960}, None, "2 GPUs of 40 and 79.6 GiB; no CUDA MPS daemon"),
    ],
)
def test_the_check_says_what_keeps_programs_to_their_parts_of_gpus(
    monkeypatch: pytest.MonkeyPatch, memory: dict[str, int], pipes: Path | None, text: str
) -> None:
    names = ("GPU-a", "GPU-b")
    found = MachineGpus(dict.fromkeys(names, "T4"), names, memory)
    monkeypatch.setattr(local_machine, "detect_gpus", lambda _: found)
    monkeypatch.setattr(gpu_limits, "mps_pipe_directory", lambda _: pipes)

    finding = machine.check_gpu_sharing()

    assert (finding.level, finding.topic) == ("ok", "GPU sharing")
    assert finding.text.startswith(text)


def test_the_check_of_a_machine_without_gpus_says_how_to_try_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_machine, "detect_gpus", lambda _: MachineGpus())

    assert machine.check_gpu_sharing().text == (
        "no GPU to share; `tarragon docs howto/gpus` shows how nodes pretend to have some"
    )


async def cluster(stage: Stage) -> None:
    """A node with two GPUs of 16 GiB, of which `large` has 0.7 of one and `small` 0.6 of the other."""
    await stage.node("a", **{NVIDIA_GPU: "2"})
    label = {"metadata": {"labels": {"nvidia.com/gpu.memory": "16384"}}}
    await stage.world.client.patch(NODES, Key("", "a"), label)
    stage.start_operator()
    await stage.submit("large", Worker=sharing(1, "0.7"))
    await stage.until_pods("large-worker-0")
    await stage.submit("small", Worker=sharing(1, "0.6"))
    await stage.until_pods("large-worker-0", "small-worker-0")


async def status_of(stage: Stage, name: str) -> QueueStatus:
    await stage.world.until(lambda: "wait" in stage.admission(name))
    client = stage.world.client
    return await queue_status(client, await find_job(client, name, "default"), stage.world.clock)


async def test_why_tells_what_is_left_of_each_gpu_and_who_has_the_rest(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await cluster(stage)
        await stage.submit("mine", Worker=sharing(1, "0.5"))
        found = await status_of(stage, "mine")
        message = stage.admission("mine")["wait"]["message"]

    assert message == "no GPU has 0.5 left (most: 0.4 on vGPU 1 of node a)"
    assert list(found.lines(NOON))[1:6] == [
        "  node a has no room: 0.7 of 2 nvidia.com/gpu free",
        "    vGPU 1: 0.4 and 6.4Gi of its memory left; held by small (0.6, 9.6Gi)",
        "    vGPU 0: 0.3 and 4.8Gi of its memory left; held by large (0.7, 11.2Gi)",
        "  there is enough in total, but not together on one GPU",
        "  the job could start when large ends",
    ]
    (node,) = found.fields()["short"]["nodes"]
    assert node["lacking"] == {NVIDIA_GPU: "100m"}
    assert [each["holds"][NVIDIA_GPU] for each in node["heldBy"]] == ["700m", "600m"]
    assert [(each["number"], each["left"][NVIDIA_GPU]) for each in node["vgpus"]] == [(0, "300m"), (1, "400m")]
    assert node["vgpus"][0]["heldBy"][0]["name"] == "large"
    assert node["vgpus"][0]["left"]["nvidia.com/gpu.memory"].isdecimal()


async def test_why_tells_of_memory_where_that_is_what_is_short(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await cluster(stage)
        await stage.submit("mine", Worker=sharing(1, "0.1", 8 * GIB))
        found = await status_of(stage, "mine")

    lines = list(found.lines(NOON))
    assert "  node a has no room: 6.4Gi of 16Gi GPU memory free on one GPU" in lines
    assert "    vGPU 1: 0.4 and 6.4Gi of its memory left; held by small (0.6, 9.6Gi)" in lines


async def test_why_names_the_constraint_that_keeps_a_job_from_gpus_with_enough_left(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await cluster(stage)
        alone = sharing(1, "0.2")
        alone["template"]["metadata"]["annotations"]["kubeshare/sched_exclusion"] = "me"
        await stage.submit("mine", Worker=alone)
        found = await status_of(stage, "mine")

    assert list(found.lines(NOON))[1:5] == [
        "  node a has no room: 0.7 of 2 nvidia.com/gpu free, but no GPU that kubeshare/sched_exclusion permits",
        "    vGPU 1: 0.4 and 6.4Gi of its memory left; held by small (0.6, 9.6Gi)",
        "    vGPU 0: 0.3 and 4.8Gi of its memory left; held by large (0.7, 11.2Gi)",
        "  the job could start when large ends",
    ]
    (node,) = found.fields()["short"]["nodes"]
    assert (node["lacking"], node["barredBy"]) == ({}, "kubeshare/sched_exclusion")


async def test_why_a_whole_gpu_is_not_free_is_told_with_those_who_share_it(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await cluster(stage)
        await stage.submit("whole", Worker=group(1, **{NVIDIA_GPU: "1"}))
        found = await status_of(stage, "whole")

    lines = list(found.lines(NOON))
    assert "  node a has no room: 0 of 2 nvidia.com/gpu free" in lines
    assert "    vGPU 0: 0.3 and 4.8Gi of its memory left; held by large (0.7, 11.2Gi)" in lines


async def test_a_pod_of_nobody_that_shares_a_gpu_holds_it_like_a_job(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await cluster(stage)
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "other",
                "namespace": "default",
                "annotations": {**share("0.2"), "tarragon.dev/vgpu": "0"},
            },
            "spec": {"nodeName": "a", "containers": [{"name": "c", "image": "i"}]},
        }
        await stage.world.client.create(PODS, body)
        await stage.submit("mine", Worker=sharing(1, "0.5"))
        found = await status_of(stage, "mine")

    assert (
        "    vGPU 0: 0.1 and 1.6Gi of its memory left; held by large (0.7, 11.2Gi) and pod default/other (0.2, 3.2Gi)"
        in list(found.lines(NOON))
    )


async def test_where_a_pod_holds_a_gpu_for_others_they_are_told_and_not_the_pod(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await stage.node("a", sharing="anchor", **{NVIDIA_GPU: "1"})
        await stage.world.client.create(NAMESPACES, {"metadata": {"name": "gpus"}})
        container = {"name": "gpu", "image": "i", "resources": {"limits": {NVIDIA_GPU: "1"}}}
        meta = {"labels": {"tarragon.dev/gpu-anchor": "true"}, "annotations": {"tarragon.dev/vgpu": "0"}}
        anchor = {"metadata": {"name": "anchor", "namespace": "gpus", **meta}}
        part = {**share("0.7"), "tarragon.dev/vgpu": "0"}
        user = {"metadata": {"name": "other", "namespace": "default", "annotations": part}}
        for body, inside in ((anchor, container), (user, {"name": "c", "image": "i"})):
            pod = {"apiVersion": "v1", "kind": "Pod", **body, "spec": {"nodeName": "a", "containers": [inside]}}
            await stage.world.client.create(PODS, pod)
        options = OperatorOptions(seed=1, settings=OperatorSettings(gpu_anchors=AnchorSettings(namespace="gpus")))
        stage.start(Operator(stage.world.client, stage.world.clock, options).run())
        await stage.submit("mine", Worker=sharing(1, "0.5"))
        found = await status_of(stage, "mine")
        message = stage.admission("mine")["wait"]["message"]

    assert message == "no GPU has 0.5 left (most: 0.3 on vGPU 0 of node a)"
    assert list(found.lines(NOON))[1:3] == [
        "  node a has no room: 0.3 of 1 nvidia.com/gpu free",
        "    vGPU 0: 0.3 left; held by pod default/other (0.7)",
    ]


async def test_a_node_that_is_only_supposed_shares_its_gpus_as_the_others_do(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await cluster(stage)
        await stage.submit("mine", Worker=sharing(1, "0.1", 20 * GIB))
        await status_of(stage, "mine")
        starts = []
        for memory in ("16Gi", "24Gi"):
            asked = what_if_of_pairs([("add-nodes", f"1xnvidia.com/gpu=1,gpu-memory={memory},cpu=8,memory=8Gi")])
            target = EmbeddedTarget(Home(Path("nowhere")), "")
            found = await ask_what_if(stage.world.client, target, asked, (), stage.world.clock)
            starts.append(found.scenarios[0].course.gangs["TFJob default/mine"].starts_in)

    assert starts == [None, 0]


async def test_jobs_ahead_are_told_with_their_parts_of_gpus(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await cluster(stage)
        await stage.submit("first", Worker=sharing(3, "0.5"))
        await status_of(stage, "first")
        await stage.submit("second", Worker=sharing(1, "1"))
        found = await status_of(stage, "second")

    assert [each["gpus"] for each in found.fields()["wait"]["ahead"]] == [1.5]
    assert next(found_line for found_line in found.lines(NOON) if "ahead" in found_line) == (
        "  ahead of it: first (3 replicas, 1.5 GPUs)"
    )


@pytest.mark.timeout(300)
def test_a_job_that_shares_a_gpu_is_described_with_its_part(shell: Shell) -> None:
    body = job("half", Worker=sharing(2, "0.25", 2 * GIB))
    container = body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["command"] = ["sleep", "600"]
    node = {"TARRAGON_UP_NODE": "name=a,cpu=4,memory=4Gi,nvidia.com/gpu=1,gpu-memory=16Gi"}
    here = dataclasses.replace(shell, variables=node)
    submitted = here("submit", here.file("half.yaml", json.dumps(body)))
    waited = here("wait", "half", "--for", "running", "--timeout", "60s")
    described, listed = here("describe", "half"), here("list")

    assert (submitted.code, waited.code) == (0, 0), submitted.err + waited.err
    rows = [line.split() for line in described.out.splitlines() if line.startswith("  worker-")]
    assert [" ".join(row[5:]) for row in rows] == [
        f"0.25 of vGPU 0 (GPU 0, 2Gi) half-worker-{index}.default.svc:2222 {row[-1]}" for index, row in enumerate(rows)
    ]
    header, row = listed.out.splitlines()
    assert row.split()[header.split().index("GPUS")] == "0.5"
