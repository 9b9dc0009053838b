from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.frameworks.tensorflow.crd import crd
from tarragon.job.progress import Progress, encode_progress
from tarragon.job.status import JobStatus, Obstacle
from tarragon.job.status_encoding import StatusSummary, encode_status
from tests.plan.world import START

ROOT = Path(__file__).parent.parent.parent


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from nodes(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from nodes(value)


def test_the_file_that_people_apply_is_what_the_code_says() -> None:
    for framework in FRAMEWORKS:
        name = framework.crd()["metadata"]["name"]
        assert yaml.safe_load((ROOT / "deploy" / f"crd-{name}.yaml").read_text()) == framework.crd()


def test_every_generation_is_served_with_one_schema_and_v1_is_stored() -> None:
    versions = crd()["spec"]["versions"]

    assert [version["name"] for version in versions if version["served"]] == [
        "v1",
        "v1beta2",
        "v1beta1",
        "v1alpha2",
        "v1alpha1",
    ]
    assert [version["name"] for version in versions if version["storage"]] == ["v1"]
    assert all({**version, "name": "", "storage": True} == {**versions[0], "name": ""} for version in versions)
    assert crd()["spec"]["conversion"] == {"strategy": "None"}


def test_nothing_is_required_or_defaulted_so_that_no_generation_poisons_another() -> None:
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert not [node for node in nodes(schema) if isinstance(node.get("required"), list) or "default" in node]


def test_columns_and_scale_read_only_what_every_generation_has() -> None:
    version = crd()["spec"]["versions"][0]
    paths = [column["jsonPath"] for column in version["additionalPrinterColumns"]]
    scale = version["subresources"]["scale"]

    assert [column["name"] for column in version["additionalPrinterColumns"]] == [
        "State",
        "Ready",
        "Restarts",
        "Age",
        "Progress",
        "Reason",
        "Message",
    ]
    assert all(path.startswith((".status.tarragon.", ".metadata.")) for path in paths)
    assert scale["specReplicasPath"] == ".spec.tfReplicaSpecs.Worker.replicas"
    assert scale["statusReplicasPath"] == ".status.tarragon.replicas"


def test_what_columns_and_scale_read_is_what_the_status_has() -> None:
    summary = StatusSummary(generation="g", observed_generation=1, state="Running", total=3, workers=2, selector="a=b")
    status = JobStatus(obstacle=Obstacle(since=START, reason="Refused", message="exceeded quota"))
    progress = encode_progress(Progress(updated_at=START, done=1, total=2))
    ours = {**encode_status(status, summary), "progress": progress}
    fields = {"status": {"tarragon": ours}, "metadata": {"creationTimestamp": "x"}}
    version = crd()["spec"]["versions"][0]
    paths = [column["jsonPath"] for column in version["additionalPrinterColumns"]]
    paths += [version["subresources"]["scale"][name] for name in ("statusReplicasPath", "labelSelectorPath")]

    for path in paths:
        found: Any = fields
        for name in path.strip(".").split("."):
            found = found[name]
        assert found is not None
