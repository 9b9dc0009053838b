"""A manifest written for DRAGON's cluster of 2020, on a laptop of today."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.e2e.user import EXAMPLES, User

pytestmark = pytest.mark.timeout(400)

DRAGON = Path(__file__).parents[1] / "data" / "manifests" / "002-dragon-cpu.yaml"
NO_NETWORK = {"https_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}  # nobody listens there

# Each writes down how many workers there may be, and nobody ends before as many are there as it was told.
MEET = """
import glob, json, os, sys, time
config = json.loads(os.environ['TF_CONFIG'])
name = 'here-%d' % config['task']['index']
print('workers:', len(config['cluster']['worker']))
with open(name + '~', 'w') as note:
    note.write(str(len(config['cluster']['worker'])))
os.rename(name + '~', name)
while len(glob.glob('here-?')) < int(sys.argv[1]) or config['task']['index']:
    time.sleep(0.1)
"""


@contextmanager
def cluster_of(user: User, node: str) -> Iterator[None]:
    """With this one node; it is strict, so that the size of a job does not depend on the machine of the test."""
    serving = user.start("up", "--node", node, "--policy", "dragon")
    serving.until("ready")
    yield
    assert user("down").code == 0
    assert serving.ended().code == 0


def sets(command: list[str], *types: str) -> list[str]:
    """Options that put this command in the place of the one that loads a script from a server of long ago."""
    paths = [f"spec.tfReplicaSpecs.{each}.template.spec.containers[tensorflow].command" for each in types]
    return [word for path in paths for word in ("--set", f"{path}={command}")]


def sizes(user: User) -> str:
    (line,) = re.findall(r"^Replicas: +(.*)$", user("describe", "job1").out, re.MULTILINE)
    return str(line)


def test_unchanged_and_offline_it_succeeds_and_is_doubted(user: User) -> None:
    offline = replace(user, variables=NO_NETWORK)
    with cluster_of(offline, "name=laptop,cpu=20,memory=24Gi"):
        ended = offline.run(str(DRAGON))

    assert ended.code == 0
    assert "Succeeded  job1" in ended.out
    assert re.search(r"^warning: worker-0 ended after \S+ s with no output; did it train\?$", ended.out, re.MULTILINE)


@pytest.mark.parametrize(("memory", "workers"), [("16Gi", 1), ("24Gi", 2), ("100Gi", 4)])
def test_it_starts_with_as_many_of_its_four_workers_as_there_is_memory_for(
    user: User, memory: str, workers: int
) -> None:
    with cluster_of(user, f"name=laptop,cpu=20,memory={memory}"):
        command = ["python", "-uc", MEET, str(workers)]
        ended = user.run(str(DRAGON), *sets(command, "Worker"), *sets(["sleep", "1000"], "PS"))
        said = sizes(user)

    assert ended.code == 0, ended.err
    # Elastic: all four may join, so all are in TF_CONFIG from the start.
    assert {note.name: note.read_text() for note in user.folder.glob("here-*")} == {
        f"here-{index}": "4" for index in range(workers)
    }
    assert said == f"ps 1, worker {workers}{' (4 requested)' if workers < 4 else ''}"
    # The pods go at once with their job, with no time to end: their words must not go with them.
    assert set(re.findall(r"^\[(\S+)\] workers: 4$", ended.out, re.MULTILINE)) == {
        f"worker-{index}" for index in range(workers)
    }


def test_where_not_even_the_smallest_of_it_fits_it_says_so(user: User) -> None:
    with cluster_of(user, "name=laptop,cpu=20,memory=15Gi"):
        ended = user.run(str(DRAGON))

    assert ended.code == 105
    assert "Error: tfjob/job1 can never start here: " in ended.err
    assert "memory" in ended.err


@pytest.mark.tensorflow
@pytest.mark.slow
def test_with_a_script_in_its_style_it_trains(user: User) -> None:
    _, config_map, _ = yaml.safe_load_all((EXAMPLES / "ps-tf1.yaml").read_text())
    for name, text in config_map["data"].items():
        user.file(name, text)
    command = ["python", "-u", "train.py", "--steps", "1200", "--model-dir", "models"]

    with cluster_of(user, "name=laptop,cpu=20,memory=24Gi"):
        ended = user.run(str(DRAGON), *sets(command, "PS", "Worker"))

    assert ended.code == 0, ended.out + ended.err
    (accuracy,) = re.findall(r"^Succeeded  job1 in .*  accuracy (\d\.\d+)", ended.out, re.MULTILINE)
    assert float(accuracy) >= 0.95
    # There is memory for two; only where one of them is done before the other does a third find a place.
    (steps,) = re.findall(r"steps by worker: (.*)", ended.out)
    assert re.fullmatch(r"worker-0:[1-9]\d* worker-1:[1-9]\d* worker-2:\d+ worker-3:0", steps)
