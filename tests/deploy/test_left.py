from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
import yaml

from tarragon.kube.core import ENDPOINTS, LEASES, PODS
from tarragon.operator.coexistence.detection import DEPLOYMENTS
from tarragon.plan.nodes.left_to_kube_scheduler import LEFT_TO_KUBE_SCHEDULER
from tests.deploy.stage import Stage, group, verbs_of

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]


def admitted(stage: Stage, name: str, namespace: str = "default") -> str:
    """The reason of its condition Admitted."""
    status = stage.status(name, namespace)
    found = None if status is None else status.condition("Admitted")
    return "" if found is None else found.reason


async def test_an_operator_of_two_namespaces_needs_nothing_outside_of_them(stage: Stage, tmp_path: Path) -> None:
    for name in ("team-a", "team-b", "team-c"):
        await stage.kubectl("create", "namespace", name)
    shutil.copytree("deploy/namespaced", tmp_path / "namespaced")
    mine = {"namespace": "team-a", "resources": ["namespaced"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    await stage.kubectl("apply", "-k", str(tmp_path))
    await stage.kubectl("apply", "-n", "team-b", "-f", "deploy/namespaced/role.yaml")
    account = "--serviceaccount=team-a:tarragon"
    await stage.kubectl("create", "rolebinding", "tarragon", "-n", "team-b", "--role=tarragon", account)
    for name in ("team-a", "team-b"):
        await stage.until_may("system:serviceaccount:team-a:tarragon", "create", "pods", "-n", name)

    operator = await stage.operator(await stage.token("team-a"), "--namespace", "team-a", "--namespace", "team-b")
    await stage.until(lambda: operator.is_leading)
    for name in ("team-a", "team-b", "team-c"):
        await stage.submit("job", name, PS=group(1), Worker=group(1))
    for name in ("team-a", "team-b"):
        await stage.until_state("job", "Running", name)
        await stage.until(partial(stage.runs_all, "job-ps-0", "job-worker-0", namespace=name))
        assert admitted(stage, "job", name) == LEFT_TO_KUBE_SCHEDULER
        await stage.ends("job-worker-0", 0, name)
        await stage.until_state("job", "Succeeded", name)
    await operator.stop()
    # Whoever looks for installations in this control plane later finds none here.
    await stage.kubectl("delete", "deployments,leases", "--all", "-n", "team-a")

    asked = stage.asked_by("system:serviceaccount:team-a:tarragon")
    refused = [event for event in asked if event["responseStatus"].get("code") in {401, 403}]
    # It would like to know whether a training operator keeps the whole cluster, and goes on when that is not said.
    assert verbs_of(refused) == {(kind.group, kind.plural, "list") for kind in (LEASES, ENDPOINTS, DEPLOYMENTS, PODS)}
    assert {event["objectRef"].get("namespace") for event in asked if event not in refused} == {"team-a", "team-b"}
    assert stage.state("job", "team-c") == "Created"
    assert not stage.runs_all("job-worker-0", namespace="team-c")
    assert "placement is left to kube-scheduler" in operator.log.read_text()


async def test_nodes_that_may_not_be_read_leave_new_jobs_to_kube_scheduler_for_good(stage: Stage) -> None:
    config = await stage.token()
    operator = await stage.operator(config)
    await stage.until(lambda: operator.is_leading)
    await stage.submit("placed", Worker=group(1))
    await stage.until(lambda: stage.runs_all("placed-worker-0"))
    await operator.stop()

    await may_read_nodes(stage, "no")
    operator = await stage.operator(config)
    await stage.submit("left", Worker=group(1))
    await stage.until(lambda: stage.runs_all("left-worker-0"))
    await stage.until_state("left", "Running")
    assert (admitted(stage, "placed"), admitted(stage, "left")) == ("Admitted", LEFT_TO_KUBE_SCHEDULER)
    await operator.stop()

    before = {key: pod.metadata.uid for key, pod in stage.pods.objects.items() if key.namespace == "default"}
    await may_read_nodes(stage, "yes")
    operator = await stage.operator(config)
    await stage.submit("late", Worker=group(1))
    await stage.until(lambda: stage.runs_all("late-worker-0"))
    await stage.until_state("late", "Running")
    assert [admitted(stage, name) for name in ("placed", "left", "late")] == [
        "Admitted",
        LEFT_TO_KUBE_SCHEDULER,
        "Admitted",
    ]
    assert before.items() <= {key: pod.metadata.uid for key, pod in stage.pods.objects.items()}.items()
    await operator.stop()


async def may_read_nodes(stage: Stage, word: str) -> None:
    role = json.loads(await stage.kubectl("get", "clusterrole", "tarragon", "-o", "json"))
    rules = [rule for rule in role["rules"] if rule["resources"] != ["nodes"]]
    if word == "yes":
        rules.append({"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]})
    await stage.kubectl("replace", "-f", "-", stdin=json.dumps({**role, "rules": rules}))
    await stage.until_may("system:serviceaccount:tarragon-system:tarragon", "list", "nodes", answer=word)
