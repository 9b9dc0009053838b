"""`tarragon node` at a prompt: what it refuses, and hollow nodes. tests/real has the rest."""

from __future__ import annotations

import json
import random
import signal

import pytest

from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.kube.core import NODES
from tarragon.kube.meta import Key
from tests.cli.conftest import Shell
from tools.controlplane import ControlPlane


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--name", "Worker_1"], "'Worker_1' is not a valid node name"),
        (["--taint", "gpu"], "'gpu' is not a taint; use KEY=VALUE:EFFECT"),
        (["--taint", "gpu=1:Never"], "is not a taint"),
        (["--cpu", "many"], "cpu: 'many' is not a quantity"),
        (["--resource", "nvidia.com/gpu=-1"], "nvidia.com/gpu: must be 0 or more, not -1"),
        (["--gpu-memory", "16Gi"], "gpu-memory: the node has no GPUs"),
        (["--resource", "nvidia.com/gpu=1", "--gpu-memory", "0"], "gpu-memory: must be 1Mi or more"),
        (["--hollow", "2", "--gpu-memory", "16Gi"], "gpu-memory: the node has no GPUs"),
        (["--image-env", "tensorflow=/nowhere/at/all"], "/nowhere/at/all is not an existing folder"),
        (["--address", "::"], "is not a specific address"),
        (["--address", "here"], "'here' does not appear to be an IPv4 or IPv6 address"),
    ],
)
def test_what_makes_no_sense_is_refused_with_words(shell: Shell, words: list[str], message: str) -> None:
    ended = shell("node", "--kubeconfig", shell.file("config", CONFIG), *words)

    assert ended.code == 2
    assert message in ended.err


CONFIG = json.dumps(
    {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
)


@pytest.mark.real
async def test_hollow_nodes_are_there_until_they_are_ended(shell: Shell, control_plane: ControlPlane) -> None:
    config = str(control_plane.kubeconfig)
    going = shell.start("node", "--kubeconfig", config, "--name", "cli", "--hollow", "2", "--cpu", "7")
    going.until("ready  2 hollow nodes")
    async with HttpClient(load_kubeconfig({}, path=control_plane.kubeconfig).rest_config, random.Random(1)) as cluster:
        nodes = [await cluster.get(NODES, Key("", name)) for name in ("cli-0", "cli-1")]
        going.signal(signal.SIGTERM)
        ended = going.ended()
        for node in nodes:
            await cluster.delete(NODES, node.metadata.key)

    assert ended.code == 0
    assert [node.status.allocatable["cpu"] for node in nodes] == ["7", "7"]
    assert all(node.is_ready for node in nodes)
