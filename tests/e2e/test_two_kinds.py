"""Jobs of two kinds that differ in capitals only, and of one name: what the commands make of them."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.user import User, eventually

pytestmark = pytest.mark.timeout(300)


def template(text: str) -> dict[str, Any]:
    container = {"name": "tensorflow", "image": "i", "command": ["sh", "-c", f"echo {text}"]}
    return {"spec": {"restartPolicy": "OnFailure", "containers": [container]}}


def of_2017(folder: Path, name: str = "one-name") -> str:
    return written(
        folder,
        {
            "apiVersion": "mlkube.io/v1beta1",
            "kind": "TfJob",
            "metadata": {"name": name},
            "spec": {"replicaSpecs": [{"tfReplicaType": "MASTER", "template": template("of mlkube")}]},
        },
    )


def of_today(folder: Path, name: str = "one-name") -> str:
    worker = {"restartPolicy": "OnFailure", "template": template("of kubeflow")}
    return written(
        folder,
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "metadata": {"name": name},
            "spec": {"tfReplicaSpecs": {"Worker": worker}},
        },
    )


def written(folder: Path, job: dict[str, Any]) -> str:
    path = folder / f"{job['kind']}.yaml"
    path.write_text(json.dumps(job))
    return str(path)


def test_each_is_run_named_and_deleted_for_itself(user: User, tmp_path: Path) -> None:
    old, new = user.run(of_2017(tmp_path)), user.run(of_today(tmp_path))
    assert (old.code, new.code) == (0, 0), old.err + new.err
    assert "tfjob.mlkube.io/one-name created" in old.err
    assert "tfjob/one-name created" in new.err

    assert sorted(user("list", "-o", "name").out.split()) == ["tfjob.mlkube.io/one-name", "tfjob/one-name"]
    kinds = {line.split()[8] for line in user("list", "-o", "wide").out.splitlines()[1:]}
    assert kinds == {"TFJob", "TfJob"}
    for named, text in {
        "tfjob/one-name": "of kubeflow",
        "TFJob/one-name": "of kubeflow",
        "tfjobs.kubeflow.org/one-name": "of kubeflow",
        "tfjobs.mlkube.io/one-name": "of mlkube",
        "tfjob.mlkube.io/one-name": "of mlkube",
    }.items():
        assert user("logs", "--no-prefix", named).out.split("\n")[0] == text, named
    assert "tfjob/one-name and tfjob.mlkube.io/one-name" in user("logs", "one-name").err
    assert user("get", "tfjobs.mlkube.io/one-name", "-o", "json").out.count('"mlkube.io/v1beta1"') >= 1

    assert user("delete", "tfjobs.mlkube.io/one-name").code == 0
    assert user("list", "-o", "name").out.split() == ["tfjob/one-name"]
    assert user("wait", "tfjobs.mlkube.io/one-name").code == 102


def test_one_alone_is_found_by_its_name_and_its_logs_also_when_it_is_deleted(user: User, tmp_path: Path) -> None:
    assert user.run(of_2017(tmp_path, "alone")).code == 0

    assert "TfJob mlkube.io/v1beta1" in user("describe", "alone").out
    assert user("logs", "--no-prefix", "tfjob/alone").out == "of mlkube\n"
    assert user("delete", "alone").code == 0
    assert user("logs", "--no-prefix", "alone").out == "of mlkube\n"


def test_a_watch_shows_both(user: User, tmp_path: Path) -> None:
    assert user("submit", of_today(tmp_path)).code == 0
    watching = user.start("list", "--watch", "-o", "wide")
    assert user("submit", of_2017(tmp_path)).code == 0

    watching.until("TfJob")
    eventually(lambda: user("wait", "tfjobs.mlkube.io/one-name").code == 0)
    watching.signal(signal.SIGINT)
    watching.ended()


def test_a_kind_in_the_wrong_capitals_is_told(user: User, tmp_path: Path) -> None:
    path = Path(of_2017(tmp_path))
    path.write_text(path.read_text().replace("TfJob", "TFJob"))

    refused = user("validate", str(path))
    assert refused.code == 2
    assert "TFJob has no version mlkube.io/v1beta1; did you mean TfJob?" in refused.err + refused.out
