"""`tarragon check --operator` of a real installation."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Mapping

import pytest

from tarragon.client.port import DeleteOptions
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tests.deploy.stage import OperatorProcess, Stage

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]

HOME = "tarragon-system"
OURS = {"app.kubernetes.io/name": "tarragon"}


async def checked(stage: Stage) -> tuple[int, set[tuple[str, str, str]]]:
    """The exit code, and level, topic and text of each finding."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tarragon", "--kubeconfig", str(stage.plane.kubeconfig)),
        *("check", "--operator", "-o", "json"),
        env={**os.environ, "TARRAGON_HOME": str(stage.plane.folder / "home")},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    findings = json.loads(out)["findings"]
    return process.returncode or 0, {(each["level"], each["topic"], each["text"]) for each in findings}


def own_address() -> str:
    """One that an API server may connect to, which refuses to proxy to loopback addresses. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback ones")
        address: str = probe.getsockname()[0]
        return address


def port_of(operator: OperatorProcess) -> int | None:
    lines = [json.loads(line) for line in operator.log.read_text().splitlines() if line.startswith("{")]
    return next((int(line["port"]) for line in lines if line["event"] == "listening"), None)


async def test_the_preflight_says_what_is_installed_who_leads_and_what_is_missing(stage: Stage) -> None:
    address = own_address()

    code, before = await checked(stage)
    operator = await stage.operator(await stage.token(), "--listen", "0.0.0.0:0")
    await stage.until(lambda: operator.is_leading and port_of(operator) is not None)
    await has_pod(stage, address, port_of(operator))
    _, after = await checked(stage)
    await stage.http.delete(PODS, Key(HOME, "tarragon-seen"), DeleteOptions(grace_period_seconds=0))

    assert code == 1
    assert ("error", "deployment", f"{HOME}/tarragon: 0 of 2 ready") in before
    assert {level for level, topic, _ in before if topic in {"version", "features", "apis", "image"}} == {"ok"}
    accounts = [text for level, topic, text in before if (level, topic) == ("ok", "account")]
    # Other tests install operators in namespaces of their own.
    assert [text for text in accounts if text.startswith(f"{HOME}/tarragon has all ")]
    assert {level for level, topic, _ in before if topic == "disruption"} == (
        {"ok"} if stage.plane.minor < 21 else {"warning"}
    )
    assert ("ok", "metrics", "tarragon-seen leads, version 0.1.0") in after
    assert ("ok", "config", "policy elastic") in after
    assert [level for level, topic, _ in after if topic == "operator"] == ["ok", "ok"]


async def has_pod(stage: Stage, address: str, port: int | None) -> None:
    """A pod that stands for the process, so that the API server can be asked for its metrics."""
    container = {"name": "operator", "image": "i", "ports": [{"name": "http", "containerPort": port}]}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "tarragon-seen", "namespace": HOME, "labels": OURS},
        "spec": {"nodeName": "n", "containers": [restricted(container)], "securityContext": {"runAsNonRoot": True}},
    }
    await stage.http.create(PODS.with_model(dict), body)
    await stage.until(lambda: stage.runs_all("tarragon-seen", namespace=HOME))
    status = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
    await stage.http.patch(PODS, Key(HOME, "tarragon-seen"), status, subresource="status")


def restricted(container: Mapping[str, object]) -> Mapping[str, object]:
    """As the namespace's level of Pod Security wants it."""
    seccomp = {"type": "RuntimeDefault"}
    return {
        **container,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": seccomp,
        },
    }
