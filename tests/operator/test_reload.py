"""The rules of scheduling, while people edit the file that they are in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import structlog.testing

from tarragon.cli.main import run_command
from tarragon.cli.operator.scheduling_options import SchedulingOptions
from tarragon.operator.scheduler.config.reload import InvalidQueuesFile, ReloadingRules
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules

BASE = SchedulingRules(starvation_seconds=7, idle_seconds=8, cool_down_seconds=9)


def test_an_edit_counts_from_the_next_round_on(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("fair: true")
    rules = ReloadingRules(file, BASE)
    assert rules() == SchedulingRules(is_fair_share=True, starvation_seconds=7, idle_seconds=8, cool_down_seconds=9)

    file.write_text("namespaces: {a: {weight: 3}}")

    assert rules() == SchedulingRules(
        queues={"a": QueueRules(weight=3)}, starvation_seconds=7, idle_seconds=8, cool_down_seconds=9
    )


def test_a_mounted_config_map_is_a_link_that_is_moved(tmp_path: Path) -> None:
    for name, text in (("one", "fair: true "), ("two", "fair: false")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "queues.yaml").write_text(text)
        os.utime(tmp_path / name / "queues.yaml", (1, 1))
    (tmp_path / "data").symlink_to("one")
    rules = ReloadingRules(tmp_path / "data" / "queues.yaml", BASE)
    assert rules().is_fair_share

    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(tmp_path / "data")

    assert not rules().is_fair_share


def test_a_bad_edit_keeps_the_last_good_rules_and_says_so_once(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("fair: true")
    told: list[bool] = []
    rules = ReloadingRules(file, BASE)
    rules.on_edit(told.append)

    with structlog.testing.capture_logs() as lines:
        for text in ("fair: maybe", "{", None, "fair: false"):
            if text is None:
                file.unlink()
            else:
                file.write_text(text)
            seen = [rules().is_fair_share, rules().is_fair_share]
            assert seen == [text != "fair: false"] * 2

    assert told == [True, True, True, False]
    assert [line["log_level"] for line in lines] == ["warning", "warning", "warning", "info"]
    assert lines[0]["why"] == "  fair: must be true or false, not 'maybe'"


def test_a_file_that_is_bad_when_it_is_first_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidQueuesFile, match="can't read"):
        ReloadingRules(tmp_path / "missing", BASE)


@pytest.mark.parametrize(
    "text", ["fair: 2026-99-99", "fair: !!int all", "[" * 3000, f"namespaces: {{a: {{weight: {'9' * 400}}}}}"]
)
def test_what_no_yaml_can_mean_is_refused_too(tmp_path: Path, text: str) -> None:
    """PyYAML has other words for it than its own errors."""
    file = tmp_path / "queues.yaml"
    file.write_text("fair: true\n")
    rules = ReloadingRules(file, SchedulingRules())
    file.write_text(text)

    assert rules().is_fair_share
    with pytest.raises(InvalidQueuesFile):
        ReloadingRules(file, SchedulingRules())


def test_a_name_means_the_folder_in_which_it_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queues.yaml").write_text("fair: true")
    monkeypatch.chdir(tmp_path)
    rules = SchedulingOptions(policy="fifo", queues=Path("queues.yaml"), aged=7, idle=8, cool_down=9).rules()

    monkeypatch.chdir("/")
    (tmp_path / "queues.yaml").write_text("fair: false")

    assert rules() == BASE


@pytest.mark.parametrize("command", ["operator", "up"])
def test_commands_refuse_a_bad_file_with_all_that_is_wrong(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TARRAGON_HOME", str(tmp_path / "home"))
    config = tmp_path / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}"
    )
    file = tmp_path / "queues.yaml"
    file.write_text("fair: maybe\nnamespaces: {a: {weight: -1}}")
    monkeypatch.setenv(f"TARRAGON_{command.upper()}_QUEUES", str(file))

    flags = ["--kubeconfig", str(config)] if command == "operator" else []
    assert run_command([command, *flags]) == 2

    told = capsys.readouterr().err
    assert "is not a valid queues file" in told
    assert "fair: must be true or false, not 'maybe'" in told
    assert "namespaces.a.weight: must be a number greater than 0, not -1" in told
