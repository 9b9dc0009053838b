"""The helm of a test, and what its chart renders."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT

CHART = ROOT / "deploy" / "chart"
NAMESPACE = "tarragon-system"
KUBERNETES = "1.37.0"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Helm:
    """A user's helm with a home of its own."""

    program: Path
    home: Path

    def __call__(self, *arguments: str, kubeconfig: Path | None = None) -> str:
        """What it prints. It must succeed."""
        code, out, err = self.run(*arguments, kubeconfig=kubeconfig)
        assert code == 0, f"helm {' '.join(arguments)} ended with {code}:\n{out}\n{err}"
        return out

    def fails(self, *arguments: str, kubeconfig: Path | None = None) -> str:
        """What it complains. It must not succeed."""
        code, out, err = self.run(*arguments, kubeconfig=kubeconfig)
        assert code != 0, f"helm {' '.join(arguments)} succeeded:\n{out}"
        return err

    def run(self, *arguments: str, kubeconfig: Path | None = None) -> tuple[int, str, str]:
        done = subprocess.run(
            [self.program, *arguments],
            env={"HOME": str(self.home), "PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig or os.devnull)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.returncode, done.stdout, done.stderr

    def rendered(self, values: Json, namespace: str = NAMESPACE) -> list[Json]:
        """The objects of a release with these values, without what helm adds to them."""
        file = self.home / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        text = self("template", "tarragon", str(CHART), "-n", namespace, "--kube-version", KUBERNETES, "-f", str(file))
        return [_without_additions(each) for each in documents(text)]


def documents(text: str) -> list[Json]:
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]


KEPT = {"CustomResourceDefinition", "Secret"}
"""What an uninstallation leaves: jobs, and the authority that the pods of running jobs trust."""
ADDED_LABELS = (
    *("app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"),
    "helm.sh/chart",
)


def _without_additions(found: Json) -> Json:
    metadata = found["metadata"]
    if found["kind"] in KEPT:
        assert metadata.pop("annotations") == {"helm.sh/resource-policy": "keep"}
    if found["kind"] == "CustomResourceDefinition":
        return found
    assert {name for name in metadata["labels"] if name != "app.kubernetes.io/name"} >= {*ADDED_LABELS}
    labels = {name: value for name, value in metadata["labels"].items() if name not in ADDED_LABELS}
    return {**found, "metadata": {**metadata, "labels": labels}}


def kustomized(folder: Path) -> list[Json]:
    """As `kubectl apply -k` would send it."""
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True, timeout=60)
    return documents(done.stdout)


def by_name(objects: Sequence[Json]) -> dict[tuple[str, str, str], Json]:
    found = {_name(each): each for each in objects}
    assert len(found) == len(objects)
    return found


def _name(found: Json) -> tuple[str, str, str]:
    metadata = found["metadata"]
    return found["kind"], metadata.get("namespace", ""), metadata["name"]
