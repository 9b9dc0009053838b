"""What docs/status.md says of words, bounds and digests."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tarragon.cli.operator import process_environment
from tarragon.plan.objects.accelerators import decode_controller_config
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.view import stalls
from tests.docs.commands import commands_in
from tests.docs.markdown import ROOT, lines

PAGE = ROOT / "docs" / "status.md"
TEXT = PAGE.read_text()


def test_every_word_of_ours_stands_on_the_page() -> None:
    words = {value for name, value in vars(stalls).items() if name.isupper() and isinstance(value, str)}

    assert {word for word in words if word.isidentifier()} - set(re.findall(r"`(\w+)`", TEXT)) == set()


def test_the_bounds_of_the_page_are_those_of_the_code() -> None:
    assert f"`--patience` ({OperatorSettings().creation_timeout:.0f} s)" in TEXT
    assert f"`--start-patience` ({OperatorSettings().start_timeout:.0f} s)" in TEXT
    assert f"after {stalls.LONG_DELAY.total_seconds() / 60:.0f} minutes" in TEXT
    assert stalls.SHORT_DELAY.total_seconds() == 60


def test_both_commands_for_the_digest_print_the_same(tmp_path: Path) -> None:
    """Kubectl answers from the file, as an API server that has stored it."""
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    manifest = (ROOT / "examples" / "tensorflow" / "ps.yaml").read_text()
    (tmp_path / "job.yaml").write_text(manifest)
    [job] = [each for each in yaml.safe_load_all(manifest) if each["kind"] == "TFJob"]
    (tmp_path / "job.json").write_text(json.dumps(job))
    ours, anybodys = (command.text for command in commands_in(TEXT, "status.md"))
    assert ours.startswith("tarragon validate --hash ")
    assert anybodys.startswith("kubectl get tfjob digits -o json | ")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def printed(command: str) -> str:
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.split()[0].removeprefix("sha256:")

    assert printed(ours) == printed(anybodys.replace("kubectl get tfjob digits -o json", "cat job.json"))


@pytest.mark.parametrize("place", ["docs/operator.md", "deploy/components/accelerators/accelerators.yaml"])
def test_the_accelerators_that_we_show_can_be_read(place: str) -> None:
    text = (ROOT / place).read_text()
    if place.endswith(".md"):
        text = "\n".join(line.text for line in lines(text) if line.language == "yaml")
        config = decode_controller_config(yaml.safe_load(text))
    else:
        [file] = yaml.safe_load(text)["data"].values()
        config = decode_controller_config(yaml.safe_load(file))

    assert config.problems == []
    assert list(config.accelerators) == ["alpha.kubernetes.io/nvidia-gpu"]


def test_a_config_file_is_read_from_its_path(tmp_path: Path) -> None:
    assert process_environment.read_accelerators(None) == {}
    with pytest.raises(process_environment.BadConfig, match="can't read"):
        process_environment.read_accelerators(tmp_path / "none.yaml")
    for text in ("a: [", "[" * 2_000 + "]" * 2_000):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(process_environment.BadConfig, match="is not YAML"):
            process_environment.read_accelerators(tmp_path / "bad.yaml")
