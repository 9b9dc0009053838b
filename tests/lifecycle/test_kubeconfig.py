from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from tarragon.base.errors import TarragonError
from tarragon.localcluster.daemon import kubeconfig

OURS = kubeconfig.kubeconfig("https://127.0.0.1:6443", b"PEM", "secret")


def test_the_kubeconfig_has_one_context_and_refers_to_no_files() -> None:
    read = yaml.safe_load(OURS)

    assert read["current-context"] == "tarragon"
    assert read["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:6443",
        "certificate-authority-data": "UEVN",
    }
    assert read["users"][0]["user"] == {"token": "secret"}


def test_the_kubeconfig_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    kubeconfig.write(tmp_path / "config", OURS)

    assert stat.S_IMODE((tmp_path / "config").stat().st_mode) == 0o600


def test_our_own_kubeconfig_is_overwritten(tmp_path: Path) -> None:
    kubeconfig.write(tmp_path / "config", OURS)
    kubeconfig.write(tmp_path / "config", kubeconfig.kubeconfig("https://127.0.0.1:1", b"PEM", "other"))

    assert b"other" in (tmp_path / "config").read_bytes()


@pytest.mark.parametrize(
    "content", ["", "contexts: [{name: work}]", '{"contexts": [{"name": "work"}]}', "\x00\xff", "[]"]
)
def test_another_file_is_never_overwritten(tmp_path: Path, content: str) -> None:
    theirs = tmp_path / "config"
    theirs.write_text(content)

    with pytest.raises(TarragonError, match="already exists"):
        kubeconfig.write(theirs, OURS)
    assert theirs.read_text() == content
