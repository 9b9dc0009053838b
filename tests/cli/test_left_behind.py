from __future__ import annotations

from pathlib import Path

from tarragon.cli.jobs.deletion import remaining_dependencies
from tarragon.cli.jobview.jobs import find_job
from tarragon.kube.core import CONFIG_MAPS
from tests.operator.stage import a_stage, group


async def test_what_never_was_is_not_said_to_be_left(tmp_path: Path) -> None:
    worker = group(1)
    worker["template"]["spec"]["volumes"] = [
        {"name": "code", "configMap": {"name": "code"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "not-there"}},
    ]
    async with a_stage(tmp_path) as stage:
        await stage.world.create(CONFIG_MAPS, "code")
        await stage.submit("job", Worker=worker)
        job = await find_job(stage.world.client, "job", "default")

        assert await remaining_dependencies(stage.world.client, job) == ["ConfigMap code"]
