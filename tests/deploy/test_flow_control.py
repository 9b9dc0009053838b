"""The component flow-control: the API server gives the operator's requests a priority level of their own."""

from __future__ import annotations

import json

import pytest

from tests.deploy.stage import Kubectl, Stage

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]

SINCE = 29
"""The minor version that has flowcontrol.apiserver.k8s.io/v1."""
FILE = "deploy/components/flow-control/flow-control.yaml"
HEADER = "X-Kubernetes-Pf-Flowschema-Uid: "


async def flow_schema_of(kubectl: Kubectl, *words: str) -> str:
    """The UID of the flow schema of a request, as the server's response names it."""
    _, said = await kubectl.run(*words, "-v=8")
    return next(line.partition(HEADER)[2].strip() for line in said.splitlines() if HEADER in line)


async def test_requests_of_the_operator_share_their_level_with_no_one_elses(stage: Stage) -> None:
    if stage.plane.minor < SINCE:
        pytest.skip("this server has API priority and fairness only in beta, or not at all")
    operator = Kubectl(await stage.token())
    await stage.kubectl("apply", "-f", FILE)
    listed = json.loads(await stage.kubectl("get", "flowschemas", "-o", "json"))["items"]
    uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in listed}

    pods = ("get", "pods", "-n", "default")
    lease = ("get", "--raw", "/apis/coordination.k8s.io/v1/namespaces/tarragon-system/leases/tarragon")
    async with stage.patience():
        while await flow_schema_of(operator, *pods) != uids["tarragon"]:  # a server reads new ones in a moment
            await stage.clock.sleep(0.1)
    assert await flow_schema_of(operator, *lease) == uids["tarragon-leader-election"]
    assert await flow_schema_of(stage.kubectl, *pods) == uids["exempt"]
    await stage.kubectl("delete", "-f", FILE)
