from __future__ import annotations

from collections.abc import Mapping

import pytest

from tarragon.cli.follow.threads import has_started, threads_line
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import CHIEF, PS
from tarragon.job.model import Replica
from tarragon.localcluster.kubelet.node.machine import available_cpus
from tests.cli.conftest import Shell
from tests.cli.manifests import command, group, job
from tests.cli.scenes import CHIEF_0, pod, progress, ps, running, waiting, worker

TYPES = (CHIEF, PS, WORKER)


@pytest.mark.parametrize(
    ("shares", "line"),
    [
        (
            {CHIEF_0: 2, ps(0): 2, worker(0): 2, worker(1): 2},
            "threads: 2 each for chief, ps and 2 workers, which request no CPUs",
        ),
        ({ps(0): 1, ps(1): 1}, "threads: 1 each for 2 ps, which request no CPUs"),
        ({worker(0): 4, worker(1): 4, CHIEF_0: 1}, "threads: 4 each for 2 workers; 1 for chief, which request no CPUs"),
        ({worker(0): 1}, "threads: 1 for worker, which requests no CPUs"),
    ],
)
def test_the_threads_of_replicas_that_share_the_cores_are_said_in_a_line(
    shares: Mapping[Replica, int], line: str
) -> None:
    assert threads_line(shares, TYPES, 8) == line


@pytest.mark.parametrize("shares", [{}, {worker(0): 8}], ids=["all set their CPUs", "it has the machine for itself"])
def test_there_is_nothing_to_say_where_nothing_is_shared(shares: Mapping[Replica, int]) -> None:
    assert threads_line(shares, TYPES, 8) == ""


def test_the_line_waits_until_every_replica_has_started() -> None:
    started = {worker(0): pod(worker(0), running())}
    late = {**started, worker(1): pod(worker(1), waiting("ContainerCreating"))}

    assert not has_started(progress(late, wished={WORKER: 2}))
    assert not has_started(progress(started, wished={WORKER: 2}))
    assert has_started(progress(started, wished={WORKER: 1}))


@pytest.mark.skipif(available_cpus() == 1, reason="one core is nothing to share")
def test_replicas_share_the_cores_of_this_machine_and_run_says_so(shell: Shell) -> None:
    words = ("sh", "-c", "echo $OMP_NUM_THREADS; until [ -e told ]; do sleep 0.05; done")
    says = command(*words)
    own = command(*words, env=[{"name": "OMP_NUM_THREADS", "value": "7"}])
    chief = {**own, "resources": {"limits": {"cpu": 1}}}
    going = shell.start(
        "run", shell.file("job.yaml", job("digits", Chief=group(chief), Worker=group(says, replicas=2)))
    )
    going.until_err("threads: ")
    shell.file("told", "")
    ended = going.ended()

    share = available_cpus() // 2
    assert {"[chief-0] 7", f"[worker-0] {share}", f"[worker-1] {share}"} <= set(ended.out.splitlines())
    assert f"threads: {share} each for 2 workers, which request no CPUs" in ended.err
