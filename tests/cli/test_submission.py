"""What is submitted under a name that is taken, by users who may not see everything."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.target import ClusterTarget, CommandPrefix
from tarragon.cli.manifest.loading import LoadedJob
from tarragon.cli.manifest.submission import Submitter
from tarragon.client.errors import Forbidden
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import ALL_OBJECTS, ObjectList, Selector
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.meta import Resource
from tests.operator.stage import Stage, a_stage, group, job


@dataclass(frozen=True, slots=True)
class Cluster:
    """One that only a context leads to: nothing of it is on this machine."""

    name: str = "context prod"
    is_local: bool = False
    nodes_folder: Path | None = None
    command_prefix: CommandPrefix = field(default_factory=lambda: CommandPrefix("tarragon", "default"))


class WithoutLists(DelegatingClient):
    """Of somebody with the verb `get`, but not `list`."""

    async def list(self, resource: Resource[Any], selection: Selector = ALL_OBJECTS) -> ObjectList[Any]:
        message = f"{resource.plural} is forbidden: {selection.namespace}"
        raise Forbidden({"status": "Failure", "code": 403, "reason": "Forbidden", "message": message})


def script(number: int = 1) -> LoadedJob:
    """The job of train.py, with a number if its name is taken."""
    body = job("train" if number == 1 else f"train-{number}", Worker=group(1))
    return LoadedJob(framework=TENSORFLOW, job=body, companions=(), notes=(), documents=[body], numbered=script)


async def submit(stage: Stage, *, notes: list[str]) -> str:
    target = cast("ClusterTarget", Cluster())
    submitter = Submitter(WithoutLists(stage.world.client), target, stage.world.clock, notes.append)
    return (await submitter.submit(script())).key.name


async def test_a_script_whose_name_is_taken_gets_a_number_where_jobs_cannot_be_listed(tmp_path: Path) -> None:
    notes: list[str] = []
    async with a_stage(tmp_path) as stage:
        names = [await submit(stage, notes=notes) for _ in range(3)]

    assert names == ["train", "train-2", "train-3"]
    assert any("so this job is train-3" in note for note in notes)


async def test_where_jobs_cannot_be_listed_free_numbers_are_not_sought_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarragon.cli.manifest.submission._TRIED_NUMBERS", 2)
    async with a_stage(tmp_path) as stage:
        for _ in range(3):
            await submit(stage, notes=[])
        with pytest.raises(TarragonError) as refused:
            await submit(stage, notes=[])

    assert refused.value.summary == "train and train-2 to train-3 already exist on context prod"
    assert refused.value.remedy == "choose a name: --name NAME"
