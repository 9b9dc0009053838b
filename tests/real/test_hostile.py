"""Anybody who may create a TFJob can write anything into it. No object may stop the operator, or hide the others."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tarragon.base.clock import SystemClock
from tarragon.client.errors import ApiError
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.http.transport import Request, Transport
from tarragon.client.port import Selector
from tarragon.kube.json_depth import MAX_DEPTH, TOO_DEEP_PLACEHOLDER
from tests.hostile import BOTH, LISTS, OBJECTS, hostile_jobs, hostile_statuses, nested
from tests.real.environment import TFJOBS, OperatorEnvironment, an_environment, group
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

OBJECTS_SINCE = 37
"""kube-apiserver 1.20 takes twice the time for each level of objects that a schema does not know, 1.37 does not."""
AT_ONCE = 8


class Raw:
    """Sends texts as they stand: no client library would write them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(self, namespace: str, text: bytes) -> None:
        await self._send("POST", TFJOBS.path(namespace), text, "application/json")

    async def patch(self, namespace: str, name: str, text: bytes, subresource: str = "") -> None:
        path = TFJOBS.path(namespace, name, subresource)
        await self._send("PATCH", path, text, "application/merge-patch+json")

    async def _send(self, method: str, path: str, text: bytes, kind: str) -> None:
        await self._transport.call(Request(method=method, path=path, body=text, content_type=kind))


@pytest.fixture
async def raw(control_plane: ControlPlane) -> AsyncIterator[Raw]:
    async with raw_to(control_plane) as made:
        yield made


@asynccontextmanager
async def raw_to(plane: ControlPlane) -> AsyncIterator[Raw]:
    transport = Transport(load_kubeconfig({}, path=plane.kubeconfig).rest_config, random.Random(1), SystemClock())
    try:
        yield Raw(transport)
    finally:
        await transport.close()


def deep_job(name: str, levels: int) -> bytes:
    return (
        f'{{"apiVersion":"kubeflow.org/v1","kind":"TFJob","metadata":{{"name":"{name}"}},'
        f'"spec":{{"tfReplicaSpecs":{{}},"zz":{nested(levels)}}}}}'
    ).encode()


async def runs_a_job(env: OperatorEnvironment, name: str) -> None:
    await env.submit(name, Worker=group(1))
    await env.until_phase(name, "Running")


@pytest.mark.parametrize("levels", [MAX_DEPTH + 2, 985, 9_000])
async def test_a_deeply_nested_job_fails_alone(control_plane: ControlPlane, raw: Raw, levels: int) -> None:
    async with an_environment(control_plane, f"deep-{levels}") as env:
        await env.node("a")
        await raw.create(env.namespace, deep_job("before", levels))
        env.start_operator()  # one that finds it in its list
        await env.until_phase("before", "Failed")
        await raw.create(env.namespace, deep_job("while", levels))  # and one that a watch brings
        await env.until_phase("while", "Failed")

        await runs_a_job(env, "honest")

        failed = env.condition("while", "Failed")
        assert failed is not None
        assert failed.message == f"spec: is nested deeper than {MAX_DEPTH} levels"


async def test_a_running_job_that_is_made_too_deep_runs_on(control_plane: ControlPlane, raw: Raw) -> None:
    async with an_environment(control_plane, "made-deep") as env:
        await env.node("a")
        env.start_operator()
        await runs_a_job(env, "honest")
        before = {name: pod["metadata"]["uid"] for name, pod in env.pods.items()}

        patch = f'{{"spec":{{"zz":{nested(2_000)}}}}}'.encode()
        await raw.patch(env.namespace, "honest", patch)
        await env.until(lambda: env.condition("honest", "SpecRefused") is not None)

        assert env.phase("honest") == "Running"
        assert {name: pod["metadata"]["uid"] for name, pod in env.pods.items()} == before


async def test_a_status_that_is_too_deep_is_read_without_what_is_too_deep(
    control_plane: ControlPlane, raw: Raw
) -> None:
    async with an_environment(control_plane, "deep-status") as env:
        await env.node("a")
        env.start_operator()
        await runs_a_job(env, "honest")

        patch = f'{{"status":{{"zz":{nested(2_000)},"tarragon":{{"zz":{nested(3_000)}}}}}}}'.encode()
        await raw.patch(env.namespace, "honest", patch, "status")
        await env.ends("honest-worker-0")

        await env.until_phase("honest", "Succeeded")


async def test_lists_of_deep_jobs_have_the_honest_ones_too(control_plane: ControlPlane, raw: Raw) -> None:
    async with an_environment(control_plane, "deep-list") as env:
        for number in range(3):
            await raw.create(env.namespace, deep_job(f"deep-{number}", 5_000))
        await env.submit("honest", Worker=group(1))
        here = Selector(namespace=env.namespace)

        whole = (await env.http.list(TFJOBS.with_model(dict), here)).items
        slim = (await env.http.list(TFJOBS, here)).items

        assert [job["metadata"]["name"] for job in whole] == ["deep-0", "deep-1", "deep-2", "honest"]
        assert TOO_DEEP_PLACEHOLDER in str(whole[0]["spec"]["zz"])
        assert [bool(job.spec_error) for job in slim] == [True, True, True, False]


async def storm(env: OperatorEnvironment, raw: Raw, count: int) -> Counter[str]:
    """So many hostile jobs, with a hostile status for every third; what the server made of them."""
    forms = (LISTS, OBJECTS, BOTH) if env.plane.minor >= OBJECTS_SINCE else (LISTS,)
    answers: Counter[str] = Counter()
    jobs, statuses = enumerate(hostile_jobs(1, count, forms)), hostile_statuses(2, forms)

    async def send_some() -> None:
        for number, (name, text) in jobs:
            try:
                await raw.create(env.namespace, text)
                answers["stored"] += 1
                if number % 3 == 0:
                    await raw.patch(env.namespace, name, next(statuses), "status")
                    answers["status stored"] += 1
            except ApiError as error:
                answers[type(error).__name__] += 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(send_some())
        for number in range(10):
            await runs_a_job(env, f"honest-{number}")
    return answers


async def goes_on(control_plane: ControlPlane, raw: Raw, namespace: str, count: int) -> None:
    async with an_environment(control_plane, namespace) as env:
        await env.node("a", cpu="64", pods="30000")
        env.start_operator()

        answers = await storm(env, raw, count)
        await runs_a_job(env, "last")

        assert answers["stored"] > count // 4
        assert answers["status stored"] > count // 30
        running = [name for name in env.names if name.startswith("honest") and env.phase(name) != "Running"]
        assert running == []

        await env.stop_operator()
        env.start_operator()  # and one that finds them all there
        await runs_a_job(env, "after")


async def test_hundreds_of_hostile_jobs_stop_nobody(control_plane: ControlPlane, raw: Raw) -> None:
    await goes_on(control_plane, raw, "hostile", 150)


@pytest.mark.soak
@pytest.mark.timeout(3_000)
async def test_ten_thousand_hostile_jobs_stop_nobody(own_control_plane: ControlPlane) -> None:
    async with raw_to(own_control_plane) as raw:
        await goes_on(own_control_plane, raw, "hostile", 10_000)
