"""Operators as their users start them, on a real API server. Each has a name of its own in the audit log."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from tarragon.client.leader_election import TYPED_LEASES
from tarragon.client.port import DeleteOptions, Selector
from tarragon.frameworks.dialect_detection import recorded_generation
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.codec import format_micro_time, parse_time
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, LEASES, NAMESPACES, NODES, PODS, SERVICES
from tarragon.kube.meta import Key, PartialObjectMetadata
from tests.cli import forkserver
from tests.deploy.stage import (
    FLAGS,
    LONG_LEASE,
    PATIENCE,
    SHORT_LEASE,
    TFJOBS,
    OperatorProcess,
    Stage,
    a_stage,
    group,
)
from tools.controlplane import ControlPlane, Release

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(180)]

Json = dict[str, Any]
LEASE = Key("default", "tarragon")
ADMIN = ["system:masters"]
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
GANG = ("j-ps-0", "j-worker-0", "j-worker-1")


@pytest.fixture(scope="module")
def plane(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane.start(tmp_path_factory.mktemp("operators"), release, full=False)
    yield plane
    plane.stop()


@pytest.fixture
async def stage(plane: ControlPlane) -> AsyncIterator[Stage]:
    """Our kinds are installed, a node is there; no operator runs."""
    async with a_stage(plane) as stage:
        await stage.install("apply", "-f", "deploy/crd-tfjobs.kubeflow.org.yaml")
        await stage.node("n")
        # As a controller would that does not run here: the node is ready.
        await stage.http.patch(NODES, Key("", "n"), {"spec": {"taints": None}})
        yield stage
        await stage.close()
        for resource in (kind.with_model(PartialObjectMetadata) for kind in (TFJOBS, PODS, SERVICES, LEASES)):
            found = await stage.http.list(resource, Selector(namespace="default"))
            now = DeleteOptions(grace_period_seconds=0)
            await asyncio.gather(*(stage.http.delete(resource, one.metadata.key, now) for one in found.items))


async def operator(stage: Stage, name: str, *flags: str) -> OperatorProcess:
    return await stage.operator(stage.plane.user(name, ADMIN), *flags)


async def two_and_a_job(stage: Stage, *flags: str) -> tuple[OperatorProcess, OperatorProcess]:
    """The first leads, the second is warm, and a job runs."""
    first = await operator(stage, "first", *flags)
    await stage.until(lambda: first.is_leading)
    second = await operator(stage, "second", *flags)
    await stage.until(lambda: "caches synced, standing by" in second.log.read_text())
    await stage.submit("j", PS=group(1), Worker=group(2))
    await stage.until_state("j", "Running")
    assert not second.is_leading
    return first, second


def uids(stage: Stage) -> dict[str, str]:
    return {key.name: pod.metadata.uid for key, pod in stage.pods.objects.items()}


def pods_made(stage: Stage) -> list[str]:
    """By the audit log, since this control plane began, of the job `j`."""
    return [
        event["objectRef"]["name"]
        for event in stage.plane.audit_events()
        if event["verb"] == "create"
        and event["objectRef"]["resource"] == "pods"
        and event["responseStatus"]["code"] == 201
    ]


def writes_of(stage: Stage, user: str, since: dt.datetime) -> list[str]:
    return [event["requestURI"] for event in _write_requests(stage, user, since)]


def accepted_writes_of(stage: Stage, user: str, since: dt.datetime) -> list[str]:
    requests = _write_requests(stage, user, since)
    return [event["requestURI"] for event in requests if event["responseStatus"]["code"] < HTTPStatus.MULTIPLE_CHOICES]


def _write_requests(stage: Stage, user: str, since: dt.datetime) -> list[dict[str, Any]]:
    return [
        event
        for event in stage.asked_by(user)
        if event["verb"] in WRITES and parse_time(event["requestReceivedTimestamp"]) > since
    ]


@pytest.mark.both_releases
async def test_when_the_leader_is_killed_the_other_goes_on_when_its_lease_has_ended(stage: Stage) -> None:
    first, second = await two_and_a_job(stage, *SHORT_LEASE)
    pods, made = uids(stage), pods_made(stage)
    first.is_stopped = True
    first.process.kill()

    await stage.until(lambda: second.is_leading)
    await stage.ends("j-worker-1", 0)
    await stage.ends("j-worker-0", 0)
    await stage.until_state("j", "Succeeded")
    assert {name: uid for name, uid in uids(stage).items() if name in pods} == {
        name: pods[name] for name in uids(stage)
    }
    assert pods_made(stage) == made
    assert (await stage.http.get(TYPED_LEASES, LEASE)).spec.lease_transitions == 1


async def test_a_leader_that_was_frozen_past_its_lease_writes_nothing_when_it_thaws_and_ends(stage: Stage) -> None:
    first, second = await two_and_a_job(stage, *SHORT_LEASE)
    first.process.send_signal(signal.SIGSTOP)
    await stage.until(lambda: second.is_leading)
    # Work for whoever believes to lead: a pod to replace, a job to begin.
    await stage.submit("k", Worker=group(1))
    await stage.until(lambda: stage.runs_all("k-worker-0"))
    await stage.ends("j-worker-1", 1)
    await stage.until_state("j", "Failed")
    thawed = stage.clock.now()
    first.is_stopped = True
    first.process.send_signal(signal.SIGCONT)
    code = await asyncio.wait_for(first.process.wait(), PATIENCE)

    assert code == 1
    # What was on its way when it froze, such as a renewal, arrives now and is refused: the lease has changed since.
    assert accepted_writes_of(stage, "first", thawed) == []
    last = json.loads(first.log.read_text().splitlines()[-1])
    assert last["event"] == "stopped: the lease is lost"
    assert last["level"] == "error"
    assert "has lost the lease default/tarragon" in last["reason"]


async def test_a_leader_that_is_told_to_end_hands_over_at_once(stage: Stage) -> None:
    first, second = await two_and_a_job(stage, *LONG_LEASE)
    pods = uids(stage)
    ending = asyncio.create_task(first.stop())

    await stage.until(lambda: second.is_leading)
    assert await ending == 0
    assert uids(stage) == pods
    await stage.ends("j-worker-0", 0)
    await stage.until_state("j", "Succeeded")


async def test_a_flood_of_jobs_does_not_hold_up_the_renewals(stage: Stage) -> None:
    one = await operator(stage, "busy", *LONG_LEASE, "--retry-period", "0.1")
    await stage.until(lambda: one.is_leading)
    began = stage.clock.now()
    await asyncio.gather(*(stage.submit(f"job-{number}", Worker=group(1, cpu="1m")) for number in range(300)))
    seen = stage.jobs.objects
    await stage.until(lambda: len(seen) == 300 and all(found.status for found in seen.values()))

    renewals, others = [began], list[dt.datetime]()
    for event in stage.asked_by("busy"):
        at = parse_time(event["requestReceivedTimestamp"])
        is_renewal = event["verb"] == "patch" and event["objectRef"]["resource"] == "leases"
        if at > began:
            (renewals if is_renewal else others).append(at)
    # Requests and not seconds: a slow machine has as few of them between two renewals as any other.
    between = [sum(last < at < next_ for at in others) for last, next_ in pairwise([*renewals, stage.clock.now()])]
    assert sum(between) > 300
    assert max(between) < sum(between) / 2
    assert (await stage.http.get(TYPED_LEASES, LEASE)).spec.lease_transitions == 0


async def test_a_standby_that_is_told_to_end_does_so_and_the_leader_does_not_notice(stage: Stage) -> None:
    began = stage.clock.now()
    _, second = await two_and_a_job(stage)
    held = await stage.http.get(TYPED_LEASES, LEASE)

    assert await second.stop() == 0
    assert (await stage.http.get(TYPED_LEASES, LEASE)).spec.acquire_time == held.spec.acquire_time
    assert writes_of(stage, "second", began) == []


async def test_one_that_may_do_nothing_and_finds_nothing_installed_waits_and_says_so(
    own_control_plane: ControlPlane,
) -> None:
    async with a_stage(own_control_plane) as stage:
        one = await stage.operator(own_control_plane.user("newcomer"))
        await stage.until(lambda: "newcomer" in one.log.read_text() and "forbidden" in one.log.read_text())
        await stage.kubectl("create", "clusterrolebinding", "all", "--clusterrole=cluster-admin", "--user=newcomer")
        await stage.until(lambda: "is its CustomResourceDefinition installed?" in one.log.read_text())
        assert not one.is_leading

        await stage.http.create(CUSTOM_RESOURCE_DEFINITIONS, TENSORFLOW.crd())
        await stage.until(lambda: one.is_leading)
        assert not one.has_died
        assert await one.stop() == 0


async def test_one_whose_namespace_does_not_exist_is_not_ready_until_somebody_creates_it(stage: Stage) -> None:
    one = await operator(stage, "lost", "--lease-namespace", "nowhere")
    await stage.until(lambda: "cannot lead: the namespace of the Lease does not exist" in one.log.read_text())
    (port,) = (line["port"] for line in map(json.loads, one.log.read_text().splitlines()) if "port" in line)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
            told = answer.status, await answer.text()

        await stage.http.create(NAMESPACES, {"metadata": {"name": "nowhere"}})
        await stage.until(lambda: one.is_leading)
        async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")

    assert told == (503, 'cannot lead: namespaces "nowhere" not found\n')


async def test_a_job_of_another_operator_is_not_touched_until_it_is_given_to_us(stage: Stage) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "1ca428e5.training-operator.kubeflow.org", "namespace": "default"},
        "spec": {"holderIdentity": "theirs", "renewTime": format_micro_time(stage.clock.now())},
    }
    await stage.http.create(LEASES, lease)
    await stage.submit("theirs", Worker=group(1))
    began = stage.clock.now()
    one = await operator(stage, "second-operator")
    await stage.until_told("theirs", "LeftToOtherOperator")
    touched = [uri for uri in writes_of(stage, "second-operator", began) if "tfjobs" in uri]
    assert touched == []
    assert "another operator is running" in one.log.read_text()

    await stage.kubectl("annotate", "tfjob", "theirs", "tarragon.dev/adopt=true")
    await stage.until_state("theirs", "Running")
    assert recorded_generation(stage.jobs.objects[Key("default", "theirs")]) == "kubeflow.org/v1"


async def test_its_log_is_json_and_names_the_job_on_each_line_about_one(stage: Stage) -> None:
    one = await operator(stage, "first")
    await stage.submit("j", Worker=group(1))
    await stage.until_state("j", "Running")
    uid = stage.jobs.objects[Key("default", "j")].metadata.uid
    await one.stop()

    lines = [json.loads(line) for line in one.log.read_text().splitlines()]
    about = [line for line in lines if "job" in line]
    assert {line["event"] for line in about} >= {"reconciled"}
    assert all((line["kind"], line["namespace"], line["job"]) == ("TFJob", "default", "j") for line in about)
    assert all(line["uid"] == uid for line in about)
    assert [line["event"] for line in lines][-1] == "stopped"


async def test_the_variables_of_the_first_operators_are_understood(stage: Stage) -> None:
    await stage.http.create(NAMESPACES, {"metadata": {"name": "kubeflow"}})
    log = stage.plane.folder / "variables.log"
    environment = {
        **{name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
        "USE_KUBE_CONFIG": str(stage.plane.user("first", ADMIN)),
        "MY_POD_NAMESPACE": "default",
        "KUBEFLOW_NAMESPACE": "kubeflow",
        "MY_POD_NAME": "my-pod",
        "CUSTOM_CLUSTER_DOMAIN": "cluster.local",
        "TARRAGON_OPERATOR_LEASE_NAME": "old",
        "HOME": str(stage.plane.folder),
    }
    with log.open("wb") as out:
        process = forkserver.Background([sys.executable, "-m", "tarragon", "operator", *FLAGS], environment, out)
    try:
        await stage.submit("j", PS=group(1), Worker=group(1))
        await stage.until_state("j", "Running")
        holder = (await stage.http.get(TYPED_LEASES, Key("kubeflow", "old"))).holder
        assert holder.startswith("my-pod_")
        pod = await stage.http.get(PODS.with_model(dict), Key("default", "j-worker-0"))
        (config,) = [one["value"] for one in pod["spec"]["containers"][0]["env"] if one["name"] == "TF_CONFIG"]
        assert json.loads(config)["cluster"]["ps"] == ["j-ps-0.default.svc.cluster.local:2222"]
    finally:
        process.terminate()
        assert await process.wait() == 0
