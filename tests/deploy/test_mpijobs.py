"""The permissions of MPIJobs: those that launchers get, and those that the operator may lack."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping

import pytest

from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.mpi.objects.owned_objects import PERMISSIONS
from tarragon.kube.core import SECRETS
from tarragon.kube.meta import Key
from tests.deploy.stage import Json, Stage, group

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]

LAUNCHER = "system:serviceaccount:default:m-launcher"
OPERATOR = "system:serviceaccount:tarragon-system:tarragon"
MPIJOBS = MPI.resource.with_model(dict)


@pytest.fixture
async def mpi(stage: Stage) -> AsyncIterator[Stage]:
    yield stage
    await stage.kubectl("delete", "mpijobs", "--all", "--wait=false")
    await stage.kubectl("delete", "configmaps,secrets,serviceaccounts,roles,rolebindings", "--all")


async def test_a_launcher_may_run_commands_in_the_workers_of_its_own_job_and_nowhere_else(mpi: Stage) -> None:
    operator = await mpi.operator(await mpi.token())
    await mpi.until(lambda: operator.is_leading)
    await mpi.submit_mpi("m", "v1")
    await mpi.submit_mpi("other", "v1")
    await mpi.until(lambda: mpi.runs_all("m-launcher", "m-worker-0", "m-worker-1", "other-worker-0"))

    async def may(*what: str) -> bool:
        _, said = await mpi.kubectl.run("auth", "can-i", *what, "--as", LAUNCHER)
        return said.strip().endswith("yes")

    await mpi.until_may(LAUNCHER, "get", "pods/m-worker-0")
    for worker in ("m-worker-0", "m-worker-1"):
        assert await may("get", f"pods/{worker}")
        assert await may("create", f"pods/{worker}", "--subresource=exec")
    for pod in ("m-launcher", "other-worker-0"):
        assert not await may("get", f"pods/{pod}")
        assert not await may("create", f"pods/{pod}", "--subresource=exec")
    for verb, kind in (("list", "pods"), ("create", "pods"), ("delete", "pods/m-worker-0"), ("get", "secrets")):
        assert not await may(verb, kind)
    assert not await may("get", "pods/m-worker-0", "--namespace=kube-system")


async def test_a_launcher_loses_its_permissions_with_its_workers(mpi: Stage) -> None:
    operator = await mpi.operator(await mpi.token())
    await mpi.until(lambda: operator.is_leading)
    await mpi.submit_mpi("m", "v1")
    await mpi.until_may(LAUNCHER, "get", "pods/m-worker-1")

    await mpi.http.patch(MPIJOBS, Key("default", "m"), {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 0}}}})

    for worker in ("m-worker-0", "m-worker-1"):
        await mpi.until_may(LAUNCHER, "get", f"pods/{worker}", answer="no")
        await mpi.until_may(LAUNCHER, "create", f"pods/{worker}", "--subresource=exec", answer="no")
    await mpi.until_may(LAUNCHER, "create", "pods", "--subresource=exec", answer="no")


async def test_the_operator_makes_a_key_pair_that_it_cannot_read(mpi: Stage) -> None:
    operator = await mpi.operator(await mpi.token())
    await mpi.until(lambda: operator.is_leading)
    await mpi.submit_mpi("m", "v2beta1")
    await mpi.until(lambda: mpi.runs_all("m-launcher", "m-worker-0", "m-worker-1"))

    made = await mpi.http.get(SECRETS.with_model(dict), Key("default", "m-ssh"))
    assert made["data"].keys() == {"ssh-privatekey", "ssh-publickey"}
    for verb in ("get", "list", "watch", "update", "patch", "delete"):
        assert (await mpi.kubectl.run("auth", "can-i", verb, "secrets/m-ssh", "--as", OPERATOR))[1].split()[-1] == "no"


async def test_without_what_only_mpijobs_need_the_operator_runs_all_other_jobs(mpi: Stage) -> None:
    before = await role(mpi)
    try:
        await withhold(mpi, before, {(each.resource.plural, each.subresource) for each in PERMISSIONS})
        operator = await mpi.operator(await mpi.token())
        await mpi.until(lambda: operator.is_leading)
        await mpi.submit_mpi("m", "v1")
        await mpi.submit("a", Worker=group(1))

        await mpi.until_state("a", "Running")
        assert "the operator may not list and watch configmaps and roles" in await until_blocked(mpi, "m")
        await operator.stop()

        await withhold(mpi, before, {("pods", "exec")})
        operator = await mpi.operator(await mpi.token())
        await mpi.until_told("m", "FailedCreateRole")
        assert "attempting to grant RBAC permissions not currently held" in await until_blocked(mpi, "m", "RBAC")
        await operator.stop()
    finally:
        await mpi.kubectl("replace", "-f", "-", stdin=json.dumps(before))

    operator = await mpi.operator(await mpi.token())
    await mpi.until(lambda: mpi.runs_all("m-launcher", "m-worker-0", "m-worker-1"))
    await operator.stop()


async def role(stage: Stage) -> Json:
    """The operator's role, as it is to be put back."""
    found: Json = json.loads(await stage.kubectl("get", "clusterrole", "tarragon", "-o", "json"))
    del found["metadata"]["resourceVersion"]
    return found


async def withhold(stage: Stage, whole: Mapping[str, object], kinds: Collection[tuple[str, str]]) -> None:
    """Leave out the rules that only MPIJobs need, and that are for these kinds and subresources."""
    only_mpi = [
        {"apiGroups": [each.resource.group], "resources": ["/".join(filter(None, kind))], "verbs": [*each.verbs]}
        for each in PERMISSIONS
        for kind in [(each.resource.plural, each.subresource)]
        if kind in kinds
    ]
    rules = whole["rules"]
    assert isinstance(rules, list)
    assert all(rule in rules for rule in only_mpi)
    kept = [rule for rule in rules if rule not in only_mpi]
    await stage.kubectl("replace", "-f", "-", stdin=json.dumps({**whole, "rules": kept}))
    await stage.until_may(OPERATOR, "create", "pods", "--subresource=exec", answer="no")


async def until_blocked(stage: Stage, name: str, words: str = "") -> str:
    """Return the message of the MPIJob's condition Blocked as soon as it has these words."""
    async with stage.patience():
        while True:
            found = await stage.http.get(MPIJOBS, Key("default", name))
            conditions = (found.get("status") or {}).get("conditions") or ()
            message = next((str(each["message"]) for each in conditions if each["type"] == "Blocked"), "")
            if message and words in message:
                return message
            await stage.clock.sleep(0.1)
