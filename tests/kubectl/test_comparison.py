"""One kubectl, one script, two servers: the embedded one and a real control plane."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tarragon.base.clock import SystemClock
from tarragon.localcluster.daemon.cluster import LocalCluster, LocalClusterSettings
from tarragon.localcluster.daemon.kubeconfig import kubeconfig
from tarragon.localcluster.home.home import Home
from tests.conftest import NEWEST_KUBECTL
from tests.kubectl.comparison import Allowance, not_allowed, read_allowances
from tests.kubectl.transcript import Answer, Step, in_namespace, normal, play, read_script
from tools.controlplane import ControlPlane

HERE = Path(__file__).parent
SCRIPT = (HERE / "script.yaml", HERE / "further.yaml", HERE / "access.yaml")
LEAST_STEPS = 300


@asynccontextmanager
async def embedded_cluster(folder: Path) -> Any:
    """All of it, but no node and no operator: as `tarragon up` has it before the first job."""
    home = Home(folder)
    home.prepare()
    cluster = await LocalCluster.start(LocalClusterSettings(home=home), SystemClock())
    try:
        yield yaml.safe_load(kubeconfig(cluster.url, home.ca.read_bytes(), home.read_token()))
    finally:
        await cluster.stop()


@pytest.fixture(scope="module")
def embedded_answers(tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """Of the embedded server to the machine's own kubectl: both tests hold another one's against it."""
    return asyncio.run(alone(tmp_path_factory.mktemp("embedded") / "own", read_script(*SCRIPT), None))


@pytest.mark.kubectl
@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_kubectl_sees_no_difference_but_those_that_are_allowed(
    own_control_plane: ControlPlane, embedded_answers: list[Answer], tmp_path: Path
) -> None:
    # One of its own: other tests leave their kinds in the one that all share.
    config = tmp_path / "kubeconfig"
    config.write_text(in_namespace(yaml.safe_load(own_control_plane.kubeconfig.read_text()), "story"))
    allowances = read_allowances(HERE / "differences.yaml")

    real = await play(read_script(*SCRIPT), config)

    wrong = not_allowed(real, embedded_answers, allowances)
    assert len(real) > LEAST_STEPS
    assert not wrong, "\n".join(wrong)
    assert [needless for one in allowances for needless in one.needless()] == []


@pytest.mark.kubectl
@pytest.mark.newest_kubectl
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.xdist_group("own control plane")  # as the one above, with which it shares half of the answers
async def test_the_newest_kubectl_sees_what_the_machines_own_sees(
    embedded_answers: list[Answer], tmp_path: Path
) -> None:
    allowances = read_allowances(HERE / "versions.yaml")

    new = await alone(tmp_path / "new", read_script(*SCRIPT), NEWEST_KUBECTL)

    wrong = not_allowed(embedded_answers, new, allowances)
    assert not wrong, "\n".join(wrong)
    assert [needless for one in allowances for needless in one.needless()] == []


async def alone(folder: Path, steps: Sequence[Step], program: Path | None) -> list[Answer]:
    """The answers of an embedded server that nobody else asks."""
    folder.mkdir()  # noqa: ASYNC240 - nothing else runs yet
    place = folder / "kubeconfig"
    async with embedded_cluster(folder / "home") as ours:
        place.write_text(in_namespace(ours, "story"))
        return await play(steps, place, program)


def answer(name: str, *lines: str) -> Answer:
    return Answer(Step(name=name, arguments=[]), lines)


def test_a_difference_is_told_with_its_command_and_both_sides() -> None:
    real = [answer("get a", "same", "theirs", "exit 0"), answer("get b", "exit 0")]
    ours = [answer("get a", "same", "ours", "exit 1"), answer("get b", "exit 0")]

    differences = not_allowed(real, ours, [])

    assert differences[0] == "kubectl get a"
    assert {tuple(line.split(maxsplit=1)) for line in differences[1:]} == {
        ("real", "theirs"),
        ("embedded", "ours"),
        ("real", "exit 0"),
        ("embedded", "exit 1"),
    }


def test_an_allowance_that_nothing_needs_is_told_by_its_pattern() -> None:
    allowance = Allowance("so it is", ["get *", "list *"], {"real": ["their.*", "nobody's"], "embedded": ["ours"]})

    wrong = not_allowed([answer("get a", "theirs")], [answer("get a", "ours")], [allowance])

    assert wrong == []
    assert list(allowance.needless()) == ["list *  (so it is)", "real: nobody's  (so it is)"]


def test_an_allowance_holds_for_its_own_commands_and_side_alone() -> None:
    allowance = Allowance("so it is", ["get a"], {"real": ["x"], "embedded": []})

    elsewhere = not_allowed([answer("get b", "x")], [answer("get b")], [allowance])
    other_side = not_allowed([answer("get a")], [answer("get a", "x")], [allowance])

    assert len(elsewhere) == len(other_side) == 2


@pytest.mark.parametrize(
    ("line", "what_is_left"),
    [
        ("a     red    3m12s", "a  red  <age>"),
        ("uid: 5d2a8668-d3a2-4015-81f3-0c4c2511e0fb", "uid: <uid>"),
        ('"resourceVersion": "2070",', '"resourceVersion": "<version>",'),
        ("creationTimestamp: 2026-11-21T04:05:51Z", "creationTimestamp: <time>"),
        ("Start Time:  Sat, 21 Nov 2026 04:05:51 +0000", "Start Time:  <time>"),
        ("connect to https://127.0.0.1:20378/api", "connect to <server>/api"),
        ("restarts 5, in 100m of 64Mi", "restarts 5, in <age> of 64Mi"),
        ("worker-3s has 2 tails", "worker-3s has 2 tails"),
    ],
)
def test_what_no_two_runs_have_in_common_is_left_out(line: str, what_is_left: str) -> None:
    assert normal(line) == what_is_left
