"""The example for JAX is a file that a cluster and `tarragon run` take alike. It trains in tests/e2e/test_jax.py."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"
FILE = EXAMPLES / "jax" / "digits.yaml"


@pytest.fixture(scope="module")
def documents() -> list[Any]:
    return list(yaml.safe_load_all(FILE.read_text()))


def test_the_example_is_a_claim_its_scripts_and_one_job(documents: list[Any]) -> None:
    claim, config_map, job = documents

    assert [each["kind"] for each in documents] == ["PersistentVolumeClaim", "ConfigMap", "JAXJob"]
    assert claim["metadata"]["name"] == job["metadata"]["name"] + "-models"
    assert config_map["metadata"]["name"] == job["metadata"]["name"] + "-scripts"
    for name, text in config_map["data"].items():
        ast.parse(text, filename=name, feature_version=(3, 10))


def test_the_data_is_that_of_the_other_examples(documents: list[Any]) -> None:
    scripts = documents[1]["data"]

    assert scripts["digits.py"] == (EXAMPLES / "tensorflow" / "digits.py").read_text()


def test_the_script_takes_addresses_from_its_environment_alone(documents: list[Any]) -> None:
    script = documents[1]["data"]["train.py"]

    for word in ("127.0.0.1", "localhost", "6666", ".svc", "http:", "https:"):
        assert word not in script
