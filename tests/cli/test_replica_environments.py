"""Which environment the remedies for a job's replicas are for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarragon.cli.jobview.causes import ReplicaEnd, probable_causes
from tarragon.cli.jobview.jobs import ClusterJob, read_job
from tarragon.cli.manifest.replica_environments import replica_environments
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.mpi.fields import LAUNCHER
from tarragon.frameworks.mpi.framework import MPI
from tarragon.job.status import Provenance
from tarragon.kube.meta import CustomObject, CustomObjectMeta
from tests.frameworks.mpi_jobs import mpijob, template


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with environments, and a home whose images map to the one called `mapped`."""
    monkeypatch.setenv("TARRAGON_HOME", str(tmp_path / "home"))
    for name in ("home", "mapped", "used", "of workers"):
        (tmp_path / name).mkdir()
    (tmp_path / "home/images.yaml").write_text("'*': ../mapped\n")
    return tmp_path


def job(**digests: str) -> ClusterJob:
    """An MPIJob whose launcher and workers have different images: `mpi` and `worker`."""
    manifest: dict[str, Any] = mpijob(specs={"Worker": {"template": template(image="worker")}})
    metadata = CustomObjectMeta(name="pi", namespace="d", uid="u")
    found = read_job(
        MPI,
        CustomObject(
            api_version=manifest["apiVersion"],
            kind="MPIJob",
            metadata=metadata,
            raw_spec=msgspec.Raw(msgspec.json.encode(manifest["spec"])),
        ),
    )
    provenance = Provenance(manifest_digest="", operator_version="", image_digests=digests)
    return replace(found, status=replace(found.status, provenance=provenance))


def names(found: ClusterJob) -> tuple[str, str]:
    environments = replica_environments(found, is_local=True)
    return environments[LAUNCHER].name, environments[WORKER].name


def test_each_type_ran_where_its_own_image_did(folders: Path) -> None:
    found = job(mpi=str(folders / "used"), worker=str(folders / "of workers"))

    assert names(found) == (str(folders / "used"), str(folders / "of workers"))


def test_an_image_of_which_no_folder_is_known_is_looked_up_in_the_map(folders: Path) -> None:
    mapped = str(folders / "home/../mapped")

    assert names(job()) == (mapped, mapped)
    assert names(job(mpi="sha256:aa", worker=str(folders / "deleted"))) == (mapped, mapped)
    assert names(job(worker=f"{folders}/mapped {folders}/used"))[1] == mapped


def test_paths_and_disks_are_those_of_this_machine_only_where_it_ran_the_replica(folders: Path) -> None:
    no_file = ReplicaEnd(lines=["python: can't open file 'trian.py': [Errno 2] No such file"])
    full = ReplicaEnd(lines=["OSError: [Errno 28] No space left on device: 'model'"])

    def remedy(end: ReplicaEnd, *, is_local: bool) -> str:
        environment = replica_environments(job(), is_local=is_local)[LAUNCHER]
        return next(probable_causes(replace(end, environment=environment))).remedy

    assert remedy(no_file, is_local=True).endswith("or else at the folder from which tarragon was run")
    assert "--volume NAME=FOLDER" in remedy(full, is_local=True)
    assert "tarragon was run" not in remedy(no_file, is_local=False)
    assert "must be in the image, or mounted from a volume" in remedy(no_file, is_local=False)
    assert "--volume" not in remedy(full, is_local=False)


def test_on_a_cluster_it_is_the_image() -> None:
    environment = replica_environments(job(), is_local=False)[LAUNCHER]

    assert (environment.name, environment.install) == ("its image", "in the image's Dockerfile: pip install")
