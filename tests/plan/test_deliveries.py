"""Init containers that copy a tool, from the operator's own image or from another one: their commands are run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tarragon.frameworks.plugin import FileDelivery
from tarragon.plan.objects.deliveries import build_delivery
from tarragon.plan.objects.settings import OperatorSettings

IMAGES = [OperatorSettings(own_image="tarragon:1"), OperatorSettings(own_image="tarragon:1", delivery_image="other:2")]


def copied(settings: OperatorSettings, folder: Path, **environment: str) -> Path:
    """Run the command of the init container, and return where it puts the tool."""
    source, target = folder / "a tool", folder / "volume"
    source.write_text("#!/bin/sh\n")
    source.chmod(0o755)
    delivery = FileDelivery(source=str(source), target=str(target), container={"name": "delivery"})
    command: Any = build_delivery(delivery, settings)["command"]
    subprocess.run(command, env={"PATH": os.environ["PATH"], **environment}, check=True)
    return target


def test_a_tool_comes_from_the_operators_image_unless_another_one_is_given() -> None:
    delivery = FileDelivery(source="/a", target="/b", container={"name": "delivery"})

    assert [build_delivery(delivery, settings)["image"] for settings in IMAGES] == ["tarragon:1", "other:2"]


def test_the_operators_own_image_needs_no_shell() -> None:
    delivery = FileDelivery(source="/a", target="/b", container={"name": "delivery"})

    own, other = (build_delivery(delivery, settings)["command"] for settings in IMAGES)

    assert not any("/sh" in word or word == "sh" for word in own)
    assert other[0] == "/bin/sh"


@pytest.mark.parametrize("settings", IMAGES)
def test_a_tool_is_copied_and_can_be_run(settings: OperatorSettings, tmp_path: Path) -> None:
    target = copied(settings, tmp_path)

    assert (target.read_text(), os.access(target, os.X_OK)) == ("#!/bin/sh\n", True)


@pytest.mark.parametrize("settings", IMAGES)
def test_nothing_is_copied_where_the_node_has_an_agent(settings: OperatorSettings, tmp_path: Path) -> None:
    assert not copied(settings, tmp_path, TARRAGON_RSH="/the/agent").exists()
