"""One kubectl and one story of workloads, told to two clusters in which pods run."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.helm.places import on_a_real_one, on_the_embedded_cluster
from tests.kubectl.comparison import not_allowed
from tests.kubectl.transcript import Answer, in_namespace, play, read_script
from tools.controlplane import ControlPlane

HERE = Path(__file__).parent
_MADE_UP = (
    (re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{8,10}\b"), "-<hash>"),
    (re.compile(r"\b(pod-template-hash[=:]\"?)[a-z0-9]{8,10}"), r"\1<hash>"),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+\b"), "<address>"),
    (re.compile(r":3[0-2]\d{3}/"), ":<port>/"),
)


def without_progress(answers: list[Answer]) -> list[Answer]:
    """What does not come and go: how far a rollout was when somebody looked is chance."""
    return [
        replace(one, lines=[_plain(line) for line in one.lines if not line.startswith("Waiting for ")])
        for one in answers
    ]


def _plain(line: str) -> str:
    for pattern, replacement in _MADE_UP:
        line = pattern.sub(replacement, line)
    return line


@pytest.mark.kubectl
@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_workloads_are_told_alike(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    steps = read_script(HERE / "workloads.yaml")
    homes = {side: tmp_path / side for side in ("real", "embedded")}
    for home in homes.values():
        home.mkdir()
    async with (
        on_a_real_one(own_control_plane, homes["real"]) as (real_config, _),
        on_the_embedded_cluster(homes["embedded"]) as (config, _),
    ):
        places = [tmp_path / name / "user" for name in homes]
        for place, source in zip(places, (real_config, config), strict=True):
            place.mkdir()
            (place / "config").write_text(in_namespace(yaml.safe_load(source.read_text()), "story"))
        real, embedded = await asyncio.gather(*(play(steps, place / "config") for place in places))

    wrong = not_allowed(without_progress(real), without_progress(embedded), [])

    assert not wrong, "\n".join(wrong)
