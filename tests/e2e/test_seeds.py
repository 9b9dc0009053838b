"""The manifests that Tarragon was begun for, of 2017 to 2020, unchanged, to their end on a laptop of today."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.e2e.user import User

pytestmark = [pytest.mark.timeout(400)]

DATA = Path(__file__).parents[1] / "data"
SEEDS = DATA / "manifests"
TRAINS = ["python", "-m", "trainer.task"]
# Where they have no command their image decides, and here the image map stands for it.
IMAGES = {
    "gcr.io/tf-on-k8s-dogfood/*": {"entrypoint": TRAINS, "workdir": str(DATA / "programs")},
    "your_imagename": {"entrypoint": TRAINS, "workdir": str(DATA / "programs")},
}
CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: azurefile}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    file: str
    options: tuple[str, ...] = ()
    before: str = ""
    """What its author had in the cluster already."""
    pods: int = 1


TRAINED = (
    Seed(file="001-tf_job.yaml", pods=4),
    Seed(file="001-tf_smoke_gpu.yaml", options=("--cpu-only",)),
    Seed(file="003-azurefile.yaml", options=("--cpu-only",), before=CLAIM),
    Seed(file="004-tfjob.yaml", pods=5),
)
OFFLINE = (
    Seed(file="002-dragon-kubeshare.yaml", options=("--cpu-only",)),
    Seed(file="002-dragon-nvidia-gpu.yaml", options=("--cpu-only",)),
)
"""Their only command loads a program from a server of long ago; DRAGON's third one is in test_dragon.py."""


@pytest.mark.tensorflow
@pytest.mark.parametrize("seed", TRAINED, ids=lambda seed: seed.file)
def test_a_manifest_of_long_ago_trains_unchanged(user: User, seed: Seed) -> None:
    manifest = prepared(user, seed)

    ended = user.run(manifest, *seed.options)

    assert ended.code == 0, ended.out[-3000:] + ended.err[-3000:]
    assert re.search(r"^Succeeded  ", ended.out, re.MULTILINE), ended.out[-3000:]
    assert re.search(r"master 0 has ended: loss 0\.0\d\d", ended.out), ended.out[-3000:]
    assert re.search(rf"master 0 of {seed.pods}$", ended.out, re.MULTILINE)


@pytest.mark.parametrize("seed", OFFLINE, ids=lambda seed: seed.file)
def test_a_manifest_whose_program_is_no_more_is_accepted_and_ends(user: User, seed: Seed) -> None:
    manifest = prepared(user, seed)
    worker, server = (f"spec.tfReplicaSpecs.{kind}.template.spec.containers[tensorflow]" for kind in ("Worker", "PS"))

    ended = user.run(
        manifest, *seed.options, "--set", f'{worker}.command=["true"]', "--set", f'{server}.command=["sleep", "1000"]'
    )

    assert ended.code == 0, ended.out[-3000:] + ended.err[-3000:]
    assert "Succeeded  job1" in ended.out


def test_the_one_that_shares_gpus_is_accepted_as_valid(user: User) -> None:
    found = user("validate", str(SEEDS / "002-dragon-kubeshare.yaml"))

    assert (found.code, found.err) == (0, "")


def prepared(user: User, seed: Seed) -> str:
    user.home.mkdir(mode=0o700)
    (user.home / "images.yaml").write_text(yaml.safe_dump(IMAGES))
    return user.file("job.yaml", seed.before + (SEEDS / seed.file).read_text())
