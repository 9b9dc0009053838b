"""The caches of client-go, as controllers and k9s have them, on the embedded server as on a real one."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from pathlib import Path

import pytest

from tests.conftest import NEWEST_KUBECTL

INFORMER = NEWEST_KUBECTL.with_name("informer")

pytestmark = [pytest.mark.newest_kubectl, pytest.mark.slow]


async def ran(*command: str, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize("streamed", ["true", "false"], ids=["initial events", "list and watch"])
async def test_caches_of_client_go_see_all_that_happens(kubeconfig: Path, streamed: str) -> None:
    namespace = f"informer-{uuid.uuid4().hex[:8]}"
    kubectl = (str(NEWEST_KUBECTL), f"--kubeconfig={kubeconfig}")
    await ran(*kubectl, "create", "namespace", namespace)

    document = json.loads(await ran(str(INFORMER), str(kubeconfig), namespace, KUBE_FEATURE_WatchListClient=streamed))

    assert document["unsynced"] is None
    assert document["kinds"] > 20
    assert document["seen"] == ["added one ", "added two ", "updated one v", "deleted two "]
    assert document["metadata"] == ["one"]
    assert document["columns"] == ["Name", "Data", "Age"]
    await ran(*kubectl, "delete", "namespace", namespace, "--wait=false")
