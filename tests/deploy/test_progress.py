"""Reports of progress on a real API server, with tokens as its kubelets would put them into pods."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any

import pytest

from tarragon.kube.meta import Key
from tarragon.plan.objects.progress import AUDIENCE, AUTHORITY_ANNOTATION, URL_VARIABLE
from tests.deploy.stage import TFJOBS, OperatorProcess, Stage, group
from tests.reports import STEPS, Json, Reply, send

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]

OF_THE_API_SERVER = "https://kubernetes.default.svc"


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def takes_reports(address: str) -> tuple[str, ...]:
    """The flags of an operator that takes reports there."""
    return "--progress-listen", address, "--progress-url", f"https://{address}"


@dataclass(frozen=True)
class Program:
    """What runs in a pod, with what it finds there."""

    stage: Stage
    name: str
    url: str
    authority: str

    async def token(self, audience: str = AUDIENCE) -> str:
        uid = self.stage.pods.objects[Key("default", self.name)].metadata.uid
        bound = ("--bound-object-kind=Pod", f"--bound-object-name={self.name}", f"--bound-object-uid={uid}")
        return (await self.stage.kubectl("create", "token", "default", f"--audience={audience}", *bound)).strip()

    async def report(self, body: Any = STEPS, *, token: str = "", url: str = "") -> Reply:
        return await send(url or self.url, body, token=token or await self.token(), authority=self.authority)


async def program_in(stage: Stage, name: str) -> Program:
    pod: Json = json.loads(await stage.kubectl("get", "pod", name, "-o", "json"))
    url = next(each["value"] for each in pod["spec"]["containers"][0]["env"] if each["name"] == URL_VARIABLE)
    return Program(stage, name, url, pod["metadata"]["annotations"][AUTHORITY_ANNOTATION])


def done(stage: Stage, name: str) -> int | None:
    status = stage.status(name)
    return None if status is None or status.progress is None else status.progress.done


async def leader_at(stage: Stage, address: str) -> OperatorProcess:
    operator = await stage.operator(await stage.token(), *takes_reports(address))
    await stage.until(lambda: operator.is_leading)
    return operator


async def test_the_report_of_a_pod_is_in_the_columns_of_kubectl(stage: Stage) -> None:
    await leader_at(stage, free_address())
    await stage.submit("r", Worker=group(1))
    await stage.until(lambda: stage.has_pods("r-worker-0"))

    assert (await (await program_in(stage, "r-worker-0")).report()).code == 200
    await stage.until(lambda: done(stage, "r") == 1200)
    row = (await stage.kubectl("get", "tfjobs", "r", "--no-headers")).split()
    assert row[5:] == ["step", "1,200/4,000", "(30", "%)", "·", "loss", "0.11"]


async def test_of_another_audience_forged_or_of_another_job_a_token_is_refused(stage: Stage) -> None:
    await leader_at(stage, free_address())
    for name in ("r", "q"):
        await stage.submit(name, Worker=group(1))
    await stage.until(lambda: stage.has_pods("r-worker-0", "q-worker-0"))
    program, other = await program_in(stage, "r-worker-0"), await program_in(stage, "q-worker-0")
    own = await program.token()
    head, claims, signature = own.split(".")

    assert (await program.report(token=await program.token(OF_THE_API_SERVER))).code == 401
    assert (await program.report(token=f"{head}.{claims}.{signature[::-1]}")).code == 401
    assert (await program.report(token=await other.token())).code == 403
    assert done(stage, "r") is None


async def test_the_api_server_does_not_take_the_token_for_its_own(stage: Stage) -> None:
    await leader_at(stage, free_address())
    await stage.submit("r", Worker=group(1))
    await stage.until(lambda: stage.has_pods("r-worker-0"))
    token = await (await program_in(stage, "r-worker-0")).token()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = json.loads(await stage.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(review)))

    assert "authenticated" not in answer["status"]


async def test_a_standby_takes_reports_and_trusts_the_same_authority(stage: Stage) -> None:
    """A Service leads to any operator, and the lease of another must not fence what a standby writes."""
    of_leader, of_standby = free_address(), free_address()
    await leader_at(stage, of_leader)
    standby = await stage.operator(await stage.token(), *takes_reports(of_standby))
    await stage.until(lambda: "receiving reports" in standby.log.read_text())
    await stage.submit("r", Worker=group(1))
    await stage.until(lambda: stage.has_pods("r-worker-0"))
    program = await program_in(stage, "r-worker-0")

    assert of_leader in program.url
    assert (await program.report(url=program.url.replace(of_leader, of_standby))).code == 200
    await stage.until(lambda: done(stage, "r") == 1200)
    assert not standby.is_leading


async def test_the_token_of_a_pod_that_is_gone_is_refused(stage: Stage) -> None:
    await leader_at(stage, free_address())
    await stage.submit("r", Worker=group(1, policy="OnFailure"))
    await stage.until(lambda: stage.has_pods("r-worker-0"))
    program = await program_in(stage, "r-worker-0")
    former = await program.token()
    assert (await program.report(token=former)).code == 200
    await stage.until(lambda: done(stage, "r") == 1200)
    uid = stage.pods.objects[Key("default", "r-worker-0")].metadata.uid
    await stage.kubectl("delete", "pod", "r-worker-0", "--wait=false")
    await stage.until(
        lambda: (
            (found := stage.pods.objects.get(Key("default", "r-worker-0"))) is not None and found.metadata.uid != uid
        )
    )
    await stage.until(
        lambda: (
            (found := stage.status("r")) is not None and found.progress is not None and found.progress.is_of_earlier_pod
        )
    )

    assert (await program.report(token=former)).code == 403
    assert (await program.report()).code == 200
    await stage.http.delete(TFJOBS, Key("default", "r"))
