"""Every example is a file that a cluster and `tarragon run` take alike."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "examples" / "tensorflow"
NAMES = ("mlkube.yaml", "multiworker.yaml", "ps-tf1.yaml", "ps.yaml", "single.yaml", "v1alpha1.yaml")
VERSIONS = {"v1alpha1.yaml": "kubeflow.org/v1alpha1", "mlkube.yaml": "mlkube.io/v1beta1"}
SHARED = ("digits.py", "evaluate.py", "replica.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    name: str
    claim: Any
    config_map: Any
    job: Any

    @property
    def scripts(self) -> Mapping[str, str]:
        scripts: Mapping[str, str] = self.config_map["data"]
        return scripts

    @property
    def replica_specs(self) -> Sequence[Any]:
        spec = self.job["spec"]
        return list(spec["tfReplicaSpecs"].values()) if "tfReplicaSpecs" in spec else spec["replicaSpecs"]

    @property
    def pods(self) -> Sequence[Any]:
        """Of those whose program is the example's."""
        return [spec["template"]["spec"] for spec in self.replica_specs if "template" in spec]


@pytest.fixture(params=NAMES)
def example(request: pytest.FixtureRequest) -> Example:
    documents = yaml.safe_load_all((EXAMPLES / request.param).read_text())
    # In this order: a job that arrives before its claim may be placed where the claim's volume cannot be.
    claim, config_map, job = documents
    return Example(name=request.param, claim=claim, config_map=config_map, job=job)


def test_there_is_no_example_that_these_tests_do_not_know() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.yaml")) == sorted(NAMES)


def test_an_example_is_a_claim_its_scripts_and_one_job(example: Example) -> None:
    version = VERSIONS.get(example.name, "kubeflow.org/v1")
    kinds = [
        (document["apiVersion"], document["kind"]) for document in (example.claim, example.config_map, example.job)
    ]

    assert kinds == [
        ("v1", "PersistentVolumeClaim"),
        ("v1", "ConfigMap"),
        (version, "TfJob" if version.startswith("mlkube.io") else "TFJob"),
    ]
    assert example.claim["metadata"]["name"] == example.job["metadata"]["name"] + "-models"
    assert example.config_map["metadata"]["name"] == example.job["metadata"]["name"] + "-scripts"


def test_the_scripts_of_an_example_are_python_3_8(example: Example) -> None:
    assert set(example.scripts) == {"train.py", *SHARED}
    for name, text in example.scripts.items():
        ast.parse(text, filename=name, feature_version=(3, 8))


@pytest.mark.parametrize("name", SHARED)
def test_a_shared_script_is_the_same_in_all_examples_and_beside_them(example: Example, name: str) -> None:
    assert example.scripts[name] == (EXAMPLES / name).read_text(), f"copy {name} into the ConfigMap"


def test_the_scripts_take_addresses_from_tf_config_alone_and_download_nothing(example: Example) -> None:
    for name, text in example.scripts.items():
        for word in ("127.0.0.1", "localhost", "2222", ".svc", "http:", "https:", "urllib", "requests"):
            assert word not in text, f"{name} has {word}"


def test_every_replica_runs_the_training_script_in_the_stock_image(example: Example) -> None:
    for pod in example.pods:
        (container,) = pod["containers"]
        assert container["name"] == "tensorflow"
        assert container["image"] == "tensorflow/tensorflow:2.21.0"
        assert container["command"] == ["python", "-u", "/opt/train/train.py"]


def test_every_volume_of_a_replica_is_in_the_same_file_and_mounted(example: Example) -> None:
    known = [
        {"configMap": {"name": example.config_map["metadata"]["name"]}},
        {"persistentVolumeClaim": {"claimName": example.claim["metadata"]["name"]}},
    ]
    for pod in example.pods:
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        files = [volume for volume in volumes.values() if "downwardAPI" not in volume]  # else the pod tells of itself
        assert all({key: volume[key] for key in volume if key != "name"} in known for volume in files)
        assert mounts.keys() == volumes.keys()
        assert mounts["scripts"] == "/opt/train"


def test_only_a_replica_that_has_the_model_volume_gets_a_model_folder(example: Example) -> None:
    for pod in example.pods:
        (container,) = pod["containers"]
        paths = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert ("/models" in paths) == ("/models" in container.get("args", ()))


def test_the_training_script_knows_every_option_that_the_job_gives_it(example: Example) -> None:
    parsed = ast.parse(example.scripts["train.py"])
    calls = [node for node in ast.walk(parsed) if isinstance(node, ast.Call)]
    known = {argument.value for call in calls for argument in call.args[:1] if isinstance(argument, ast.Constant)}
    for pod in example.pods:
        given = [word for word in pod["containers"][0].get("args", ()) if word.startswith("--")]
        assert set(given) <= known


def test_a_lost_replica_is_started_again(example: Example) -> None:
    is_of_v1 = example.name not in VERSIONS
    policies = [spec["restartPolicy"] for spec in (example.replica_specs if is_of_v1 else example.pods)]

    assert set(policies) == {"OnFailure"}
    assert not is_of_v1 or example.job["spec"]["runPolicy"]["backoffLimit"] >= 3


def test_the_pod_in_the_readme_mounts_what_an_example_makes() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (EXAMPLES / "README.md").read_text(), re.DOTALL)
    pod = yaml.safe_load(block)["spec"]
    claim, config_map, job = yaml.safe_load_all((EXAMPLES / "ps.yaml").read_text())

    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["scripts"]["configMap"]["name"] == config_map["metadata"]["name"]
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert (
        pod["containers"][0]["image"]
        == job["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]["containers"][0]["image"]
    )
