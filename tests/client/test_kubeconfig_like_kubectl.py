"""Several files are merged as kubectl merges them: it is asked itself."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tarragon.base.errors import TarragonError
from tarragon.client.http.kubeconfig import AuthInfo, KubeconfigCluster, KubeconfigContext, load, merge

pytestmark = pytest.mark.kubectl

NAMES = ("a", "b", "c")


def some(dice: random.Random, choices: dict[str, list[Any]]) -> dict[str, Any]:
    return {name: dice.choice(values) for name, values in choices.items() if dice.random() < 0.5}


def a_file(dice: random.Random, number: int) -> dict[str, Any]:
    """Relative paths end in the number of the file: kubectl shows them as they were written there."""

    def named(kind: str, choices: dict[str, list[Any]]) -> list[dict[str, Any]]:
        return [{"name": name, kind: some(dice, choices)} for name in NAMES if dice.random() < 0.6]

    return {
        "clusters": named(
            "cluster",
            {
                "server": ["https://x", "https://y"],
                "certificate-authority": [f"ca.crt{number}", "/abs/ca.crt", f"../ca.crt{number}"],
                "certificate-authority-data": ["YWJj"],
                "tls-server-name": ["name"],
                "insecure-skip-tls-verify": [True, False],
                "proxy-url": ["http://proxy"],
            },
        ),
        "users": named(
            "user",
            {
                "token": ["t1", "t2"],
                "tokenFile": [f"token{number}", "/abs/token"],
                "client-certificate": [f"c.crt{number}", f"sub/c.crt{number}"],
                "client-key": [f"c.key{number}"],
                "username": ["ann"],
                "password": ["p"],
                "as": ["bob"],
                "as-groups": [["g"]],
                "exec": [
                    {
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "command": command,
                        "args": ["x"],
                        "env": [{"name": "A", "value": "B"}],
                        "installHint": "hint",
                        "interactiveMode": "Never",
                        "provideClusterInfo": True,
                    }
                    for command in ("bare", f"./relative{number}", f"sub/relative{number}", "/abs/plugin")
                ],
            },
        ),
        "contexts": named("context", {"cluster": ["a", "b"], "user": ["a", "b"], "namespace": ["team", "other"]}),
        **some(dice, {"current-context": ["a", "b", ""], "preferences": [{}]}),
    }


def kubectls_view(paths: list[Path], home: Path) -> dict[str, Any]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": os.pathsep.join(map(str, paths))}
    words = ["kubectl", "config", "view", "--raw", "-o", "json"]
    result = subprocess.run(words, env=environment, capture_output=True, check=True, timeout=60)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_merged_files_are_what_kubectl_sees(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    paths = []
    for number in range(3):
        path = tmp_path / f"folder{number}" / "config"
        path.parent.mkdir()
        path.write_text(yaml.safe_dump(a_file(dice, number)))
        paths.append(path)

    ours, theirs = merge(load(path) for path in paths), kubectls_view([tmp_path / "missing", *paths], tmp_path)
    assert ours.current_context == theirs["current-context"]
    for kind, found, model in (
        ("clusters", ours.clusters, KubeconfigCluster),
        ("users", ours.users, AuthInfo),
        ("contexts", ours.contexts, KubeconfigContext),
    ):
        expected = {each["name"]: msgspec.convert(each[kind.removesuffix("s")], model) for each in theirs[kind] or ()}
        assert {name: _whole(entry, tmp_path) for name, entry in found.items()} == {
            name: _whole(entry, tmp_path) for name, entry in expected.items()
        }


def _whole(entry: Any, root: Path) -> Any:
    """With whole paths, without detours."""
    value = msgspec.to_builtins(entry)
    for name in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
        value[name] = _path(value.get(name, ""), root)
    if value.get("exec"):
        value["exec"]["command"] = _path(value["exec"]["command"], root)
    return value


def _path(text: str, root: Path) -> str:
    if not text or text == "bare":
        return text
    return os.path.normpath(root / f"folder{text[-1]}" / text)


@pytest.mark.parametrize(
    "text",
    [
        "clusters: [{name: a, cluster: {server: x}}, {name: a, cluster: {server: y}}]",
        "users: [{name: a, user: {token: [x]}}]",
        "users: {a: b}",
        "{",
    ],
)
def test_what_kubectl_does_not_read_is_not_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(subprocess.CalledProcessError):
        kubectls_view([path], tmp_path)

    with pytest.raises(TarragonError):
        load(path)
