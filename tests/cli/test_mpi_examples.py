"""Manifests like those that mpi-operator and Horovod document, of every generation: all are valid, with no warning."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Shell
from tests.conftest import ROOT

EXAMPLES = sorted((ROOT / "tests" / "data" / "mpi").glob("*.yaml"))


def test_the_examples_are_of_all_generations() -> None:
    versions = {yaml.safe_load(example.read_text())["apiVersion"] for example in EXAMPLES}

    assert versions == {f"kubeflow.org/{version}" for version in ("v1alpha1", "v1alpha2", "v1", "v2beta1")}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_of_the_documentation_is_valid_except_that_its_image_is_not_here(
    shell: Shell, example: Path
) -> None:
    manifest = yaml.safe_load(example.read_text())

    ended = shell("validate", str(example))

    assert ended.code == 0
    assert [line for line in ended.err.splitlines() if ": on this machine: " not in line] == []
    assert ended.out.endswith(f": MPIJob {manifest['metadata']['name']} ({manifest['apiVersion']}) is valid\n")
