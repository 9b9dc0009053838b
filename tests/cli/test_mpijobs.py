"""The commands on an MPIJob. Its launcher prints something; tests/examples runs mpirun."""

from __future__ import annotations

import re

import pytest

from tests.cli.conftest import Shell
from tests.cli.manifests import command, group, mpi_job

pytestmark = pytest.mark.timeout(300)


def test_an_mpijob_is_followed_and_looked_at_by_its_short_name(shell: Shell) -> None:
    launcher = group(command("sh", "-c", "cat /etc/mpi/hostfile"))
    ranks = {"name": "main", "image": "acme/mpi"}
    ended = shell("run", shell.file("job.yaml", mpi_job("pi", Launcher=launcher, Worker=group(ranks, 2))))
    described = shell("describe", "mj/pi").out

    assert ended.code == 0, ended.err
    assert "[launcher-0] pi-worker-1.pi.default.svc slots=1" in ended.out
    assert re.search(r"^Replicas: +launcher 1, worker 2$", described, re.MULTILINE)
    assert re.search(r"^ +REPLICA +STATE +EXIT +RESTARTS +NODE$", described, re.MULTILINE)
    assert {line.split("]")[0] for line in shell("logs", "mj/pi", "--replica", "launcher").out.splitlines()} == {
        "[launcher-0"
    }
    assert shell("delete", "mpij/pi").out == "mpijob/pi deleted\n"
