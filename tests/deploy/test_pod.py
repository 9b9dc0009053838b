from __future__ import annotations

import random
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tarragon.client.errors import Forbidden, NotFound
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import SERVICE_ACCOUNT, in_cluster_config
from tarragon.kube.core import PODS, SECRETS
from tarragon.kube.meta import Key
from tests.deploy.stage import TFJOBS, Json, Stage
from tests.docs.markdown import ROOT

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]


def mounted() -> tuple[str, list[Json]]:
    """Where the operator's pod finds what lets it in, and what that is made of."""
    (deployment,) = [
        each
        for each in yaml.safe_load_all((ROOT / "deploy" / "tarragon.yaml").read_text())
        if each["kind"] == "Deployment"
    ]
    spec = deployment["spec"]["template"]["spec"]
    (volume,) = [each for each in spec["volumes"] if "projected" in each]
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == volume["name"]]
    return mount["mountPath"], volume["projected"]["sources"]


async def as_a_kubelet_would(stage: Stage, sources: list[Json], folder: Path) -> None:
    """The files of the volume, of what the cluster really has."""
    namespace = "tarragon-system"
    for source in sources:
        match source:
            case {"serviceAccountToken": {"path": path, "expirationSeconds": seconds}}:
                token = await stage.kubectl("create", "token", "tarragon", "-n", namespace, f"--duration={seconds}s")
                (folder / path).write_text(token)
            case {"configMap": {"name": name, "items": items}}:
                found = yaml.safe_load(await stage.kubectl("get", "configmap", name, "-n", namespace, "-o", "yaml"))
                for item in items:
                    (folder / item["path"]).write_text(found["data"][item["key"]])
            case {"downwardAPI": {"items": [{"path": path, "fieldRef": {"fieldPath": "metadata.namespace"}}]}}:
                (folder / path).write_text(namespace)
            case _:
                pytest.fail(f"a source that no kubelet of this test knows: {source}")


async def test_what_its_pod_is_given_lets_it_in_and_no_further_than_its_role(stage: Stage, tmp_path: Path) -> None:
    where, sources = mounted()
    await as_a_kubelet_would(stage, sources, tmp_path)
    url = urlsplit(stage.plane.url)
    environment = {"KUBERNETES_SERVICE_HOST": str(url.hostname), "KUBERNETES_SERVICE_PORT": str(url.port)}

    access = in_cluster_config(environment, folder=tmp_path)
    async with HttpClient(access.rest_config, random.Random(1)) as http:
        assert (await http.list(TFJOBS)).items == []
        with pytest.raises(Forbidden, match="tarragon-system:tarragon"):
            await http.list(SECRETS)
        with pytest.raises(NotFound):  # it may ask for its own pod, whose image it looks up
            await http.get(PODS, Key(access.namespace, "tarragon-0"))
    assert (where, access.namespace) == (str(SERVICE_ACCOUNT), "tarragon-system")
