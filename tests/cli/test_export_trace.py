"""Finished jobs of a cluster become a trace, which the simulator reads."""

from __future__ import annotations

import csv
import json

import pytest

from tests.cli.conftest import Shell
from tests.cli.manifests import worker

pytestmark = pytest.mark.timeout(300)


def test_finished_jobs_are_exported_and_simulated(shell: Shell) -> None:
    elastic = json.loads(worker("elastic", "import time; time.sleep(0.5)", replicas=2))
    elastic["spec"] |= {"min-instances": 1, "max-instances": 3}
    ended = [shell("run", shell.file("elastic.yaml", json.dumps(elastic))).code]
    ended.append(shell("run", shell.file("rigid.yaml", worker("rigid", "import time; time.sleep(0.5)"))).code)
    big = worker("big", "pass", resources={"limits": {"nvidia.com/gpu": 64}})
    shell("submit", shell.file("big.yaml", big))

    exported = shell("export-trace")
    trace = shell.file("jobs.csv", exported.out)
    simulated = shell("simulate", trace, "--nodes", "1", "--policy", "fifo", "--policy", "dragon", "-o", "json")

    rows = list(csv.DictReader(exported.out.splitlines()))
    assert (ended, exported.code, simulated.code) == ([0, 0], 0, 0), exported.err + simulated.err
    assert [(row["name"], row["replicas"], row["minimum"], row["maximum"], row["gpus"]) for row in rows] == [
        ("default/elastic", "2", "1", "3", "1"),
        ("default/rigid", "1", "1", "1", "1"),
    ]
    assert rows[0]["submit_s"] == "0"
    assert all(0 < float(row["duration_s"]) < 60 for row in rows)
    assert json.loads(simulated.out)["policies"]["dragon"]["jobs"] == 2


def test_a_namespace_without_finished_jobs_is_an_error_that_tells_the_way_to_others(shell: Shell) -> None:
    found = shell("export-trace", "-n", "team")

    assert (found.code, found.out) == (1, "")
    assert "no job in namespace team has finished" in found.err
    assert "-A exports the jobs of all namespaces" in found.err


def test_nodes_of_the_context_without_gpus_are_told_apart_from_a_cluster_that_is_too_small(shell: Shell) -> None:
    shell("run", shell.file("job.yaml", worker("digits", "pass")))
    trace = shell.file("jobs.csv", "name,submit_s,replicas,duration_s\na,0,1,60\n")

    found = shell("simulate", trace, "--nodes-from-cluster")

    assert found.code == 1
    assert "has a GPU" in found.err
