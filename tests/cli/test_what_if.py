"""What would become of the jobs of a cluster with other nodes, another policy or another job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.errors import TarragonError
from tarragon.cli.explain.what_if import BadChange, WhatIfResult, added_nodes, ask_what_if, load_jobs, what_if_of_pairs
from tarragon.cli.explain.what_if_output import WhatIfReport
from tarragon.cli.manifest.loading import InvalidManifest
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.targets.embedded import EmbeddedTarget
from tarragon.kube.core import NODES
from tarragon.kube.meta import Key
from tarragon.localcluster.home.home import Home
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tarragon.scheduling.policies.fifo import fifo
from tarragon.simulator.what_if.expected_runs import Basis
from tests.cli.conftest import CommandResult, Shell
from tests.cli.manifests import worker
from tests.cli.test_queue_status import GPU, RestrictedReader, busy, runs_and_ends, start
from tests.operator.stage import TFJOBS, Stage, a_stage, group, job

HOUR = 3600


async def asked(stage: Stage, *pairs: str, hidden: Mapping[str, bool] | None = None) -> WhatIfResult:
    """What comes out of `--what-if` with each of these pairs."""
    target = EmbeddedTarget(Home(Path("nowhere")), "")
    asked = what_if_of_pairs([(key, value) for key, _, value in (pair.partition("=") for pair in pairs)])
    jobs = load_jobs(target, GlobalOptions(), asked)
    return await ask_what_if(RestrictedReader(stage.world.client, hidden or {}), target, asked, jobs, stage.world.clock)


def starts(result: WhatIfResult, number: int = 0) -> Mapping[str, float | None]:
    """When each job starts, in minutes."""
    gangs = result.scenarios[number].course.gangs.values()
    return {
        gang.name.rpartition("/")[2]: None if gang.starts_in is None else round(gang.starts_in / 60)
        for gang in gangs
        if gang.is_waiting
    }


def manifest(folder: Path, name: str, workers: int, **spec: Any) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(job(name, Worker=group(workers, **{GPU: "1"}), **spec)))
    return str(path)


async def record_work(stage: Stage, name: str, seconds: float) -> None:
    """The job is one that has worked for so long with one replica."""
    kind = stage.job(name)["status"]["tarragon"]["work"]["kind"]
    work = {"kind": kind, "sizes": {"1": [seconds, 0]}, "needed": seconds}
    await stage.world.client.patch(
        TFJOBS, Key("default", name), {"status": {"tarragon": {"work": work}}}, subresource="status"
    )


def rows(result: WhatIfResult) -> Sequence[Sequence[str]]:
    return WhatIfReport(result=result, namespace="default").table_rows()


async def test_more_nodes_like_one_that_is_there_start_jobs_earlier(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage, policy=fifo)
        found = await asked(stage, "add-nodes=1xa", "run-time=1h")

    assert starts(found) == {"second": 0, "third": 60}
    baseline = found.baseline.course.gangs
    assert [round((baseline[f"TFJob default/{name}"].starts_in or 0) / 60) for name in ("second", "third")] == [60, 60]
    assert [row[0] for row in rows(found)] == ["JOB", "second", "third"]
    assert rows(found)[1][-1] == "60m earlier"


async def test_a_new_node_has_the_labels_of_the_other_but_not_its_troubles(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage, policy=fifo)
        patch = {"metadata": {"labels": {"disk": "ssd"}}, "spec": {"unschedulable": True}}
        await stage.world.client.patch(NODES, Key("", "a"), patch)
        picky = job("picky", Worker=group(2, **{GPU: "1"}))
        picky["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
        path = tmp_path / "picky.yaml"
        path.write_text(json.dumps(picky))
        found = await asked(stage, "add-nodes=1xa", "policy=backfill", f"submit={path}")
        other = await asked(stage, "add-nodes=1xb", "policy=backfill", f"submit={path}")

    assert starts(found)["picky"] is not None
    assert starts(other)["picky"] is None


async def test_jobs_on_a_node_that_is_gone_are_displaced_and_wait_for_others(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage, policy=fifo)
        found = await asked(stage, "remove=b", "run-time=1h")

    first = found.scenarios[0].course.gangs["TFJob default/first"]
    assert (first.displaced, first.ends_in) == (1, None)
    assert rows(found)[-1][:2] == ["first", "Displaced"]
    outcome = next(WhatIfReport(result=found, namespace="default").job_lines("TFJob default/first"))
    assert outcome.startswith(
        "what if the cluster were without node b: 1 replica of it would lose the node, "
        "and no other node would ever have room for what it lost"
    )


async def test_a_job_that_would_be_submitted_joins_the_end_of_the_queue(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage, policy=fifo)
        path = manifest(tmp_path, "mine", 2)
        found = await asked(stage, f"submit={path}", f"submit={path}", "policy=fifo", "run-time=1h")
        names = [name for name in stage.world.objects if name.startswith("tfjobs/")]

    assert list(starts(found)) == ["second", "third", "mine", "mine-2"]
    assert starts(found) == {"second": 60, "third": 60, "mine": 120, "mine-2": 180}
    assert len(names) == 3
    assert rows(found)[3][1:4] == ["Submitted", "-", "-"]


async def test_a_submitted_job_that_never_fits_says_why(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage, policy=fifo)
        found = await asked(stage, f"submit={manifest(tmp_path, 'huge', 9)}")
        fields = WhatIfReport(result=found, namespace="default").fields()

    huge = next(each for each in fields["whatIf"][0]["jobs"] if each["name"] == "huge")
    assert huge["neverStarts"]["code"] == "NeverFits"
    assert "it has 4 nvidia.com/gpu" in huge["neverStarts"]["message"]
    assert next(row for row in rows(found) if row[0] == "huge")[4] == "never: NeverFits"


async def test_a_submitted_job_is_expected_to_run_as_long_as_those_of_its_template(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await stage.node("a", **{GPU: "1"})
        await start(stage)
        await runs_and_ends(stage, "earlier", ["earlier-worker-0"])
        await record_work(stage, "earlier", seconds=300)
        found = await asked(stage, f"submit={manifest(tmp_path, 'mine', 1)}")

    mine = found.scenarios[0].course.gangs["TFJob default/mine"]
    assert mine.basis is Basis.WORK
    assert mine.ends_in == 330


async def test_each_policy_has_columns_of_its_own(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage, policy=fifo)
        found = await asked(stage, "policy=fifo", "policy=elastic", "policy=fifo")

    assert [each.policy for each in found.scenarios] == ["fifo", "elastic"]
    assert rows(found)[0][4::3] == ["FIFO: STARTS", "ELASTIC: STARTS"]


async def test_what_is_only_assumed_is_marked_and_said(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage, policy=fifo)
        found = await asked(stage, "policy=fifo")
        report = WhatIfReport(result=found, namespace="default")

    assert report.table_rows()[1][2].startswith("~20m (")
    rule = "as long as they have run, at least 20m (--run-time)"
    note = f"run times: 3 jobs unknown, assumed to run on: {rule}; times that follow from this are marked ~"
    assert note in list(report.notes())


async def test_the_job_that_is_asked_about_is_told_who_would_wait_longer(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage, policy=fifo)
        found = await asked(stage, "add-nodes=1xa", "run-time=1h")
        lines = list(WhatIfReport(result=found, namespace="default").job_lines("TFJob default/third"))

    assert lines[0].startswith("what if there were 1 more node like a: it would start at ~")
    assert "; 1 job would wait shorter: second (60m)" in lines[0]
    assert lines[1].startswith("as it is, it would start at ~")


async def test_who_may_not_see_all_is_told_what_is_missing(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage, policy=fifo)

        with pytest.raises(TarragonError) as caught:
            await asked(stage, "add-nodes=1xa", hidden={"nodes": False, "pods": True})

    assert caught.value.cause == (
        "you may not list nodes (their free resources) and pods in other namespaces (the resources they use)"
    )


async def test_a_node_that_does_not_exist_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await stage.node("gpu-1")

        with pytest.raises(BadChange) as removed:
            await asked(stage, "remove=gpu-2")
        with pytest.raises(BadChange) as added:
            await asked(stage, "add-nodes=2xother")

    assert (removed.value.exit_code, removed.value.remedy) == (2, "did you mean gpu-1?")
    assert added.value.remedy == "the nodes of this cluster are gpu-1"


async def test_a_name_that_a_job_of_the_cluster_has_is_an_error(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage, policy=fifo)

        with pytest.raises(TarragonError, match="tfjob/third already exists"):
            await asked(stage, f"submit={manifest(tmp_path, 'third', 1)}")


async def test_without_an_operator_its_defaults_are_assumed(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await stage.node("a", **{GPU: "2"})
        found = await asked(stage, f"submit={manifest(tmp_path, 'mine', 2)}")

    assert starts(found) == {"mine": 0}
    assert found.config.assumed_because


async def test_an_operator_with_a_quota_keeps_it_in_what_ifs_too(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage, policy=fifo, rules=lambda: SchedulingRules(queues={"default": QueueRules(quota={GPU: 3000})}))
        found = await asked(stage, "add-nodes=5xa", "run-time=1h")

    assert starts(found) == {"second": 60, "third": 60}


@pytest.mark.parametrize(
    ("pair", "text"),
    [
        ("add-nodes=0xa", "'0xa' adds 0 nodes"),
        ("add-nodes=9999999999999xa", "'9999999999999xa' adds 9999999999999 nodes"),
        ("add-nodes=a", "'a' does not say which nodes to add"),
        ("add-nodes=2xcpu=many", "'cpu=many' in '2xcpu=many' is not an amount of a resource"),
        ("add-nodes=2xcpu=0", "'cpu=0' in '2xcpu=0' is not an amount of a resource"),
        ("policy=fifoo", "'fifoo' is not a policy of the operator"),
        ("node=a", "--what-if does not know 'node'"),
    ],
)
def test_a_change_that_makes_no_sense_is_a_bad_argument(pair: str, text: str) -> None:
    key, _, value = pair.partition("=")

    with pytest.raises(BadChange) as caught:
        what_if_of_pairs([(key, value)])

    assert (caught.value.summary, caught.value.exit_code) == (text, 2)
    assert caught.value.remedy


def test_nodes_of_a_shape_have_what_is_named() -> None:
    found = added_nodes("4xnvidia.com/gpu=8,cpu=32")

    assert (found.count, found.amounts) == (4, {GPU: "8", "cpu": "32"})
    assert found.text == "4 more nodes with 8 nvidia.com/gpu, 32 cpu"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"runPolicy": {"suspend": True}}, "it is suspended (runPolicy.suspend)"),
        ({"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}, "managedBy leaves it to kueue.x-k8s.io/multikueue"),
    ],
)
def test_a_job_that_would_not_be_queued_is_a_bad_argument(tmp_path: Path, spec: Mapping[str, Any], reason: str) -> None:
    asked = what_if_of_pairs([("submit", manifest(tmp_path, "mine", 1, **spec))])

    with pytest.raises(InvalidManifest) as caught:
        load_jobs(EmbeddedTarget(Home(tmp_path), ""), GlobalOptions(), asked)

    assert caught.value.cause == reason


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A cluster with two nodes; one job runs and two wait."""
    place = tmp_path_factory.mktemp("what-if")
    folder = place / "work"
    folder.mkdir()
    nodes = {"TARRAGON_UP_NODE": "name=a,cpu=4,memory=1Gi,pods=9 name=b,cpu=4,memory=1Gi,pods=9"}
    shell = Shell(folder=folder, home=place / "home", variables={**nodes, "TARRAGON_UP_POLICY": "fifo"})
    for name, replicas in (("first", 2), ("second", 2), ("third", 1)):
        shell("submit", shell.file(f"{name}.yaml", sleeper(name, replicas)))
        shell("wait", name, "--for", "running" if name == "first" else "waiting", "--timeout", "60s")
    yield shell
    shell("down")


def sleeper(name: str, replicas: int) -> str:
    return worker(name, "import time; time.sleep(600)", replicas, resources={"limits": {"memory": "1Gi"}})


def document(result: CommandResult) -> Any:
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_a_cluster_is_simulated_with_more_nodes_and_one_more_job(asking: Shell) -> None:
    asking.file("mine.yaml", sleeper("mine", 1))

    words = ("simulate", "--from-cluster", "--add-nodes", "2xa", "--submit", "mine.yaml", "--run-time", "2h")
    table, found = asking(*words), document(asking(*words, "-o", "json"))

    assert table.code == 0
    assert table.out.splitlines()[0].split() == [
        *("JOB", "STATE", "STARTS", "ENDS", "WHAT-IF:", "STARTS", "ENDS", "CHANGE"),
    ]
    assert "nothing was changed on" in table.err
    assert found["kind"] == "WhatIf"
    assert [each["name"] for each in found["asItIs"]["jobs"]] == ["second", "third"]
    assert [each["name"] for each in found["whatIf"][0]["jobs"]] == ["second", "third", "mine"]
    second = found["whatIf"][0]["jobs"][0]
    assert second["startsInSeconds"] == 0
    assert second["startChangeSeconds"] < -HOUR
    assert "mine" not in asking("list").out


def test_why_says_what_a_node_more_would_do_for_the_job(asking: Shell) -> None:
    result = asking("why", "third", "--what-if", "add-nodes=1xmemory=3Gi,cpu=3", "--what-if", "policy=backfill")

    line = next(line for line in result.out.splitlines() if "what if" in line)
    assert "there were 1 more node with 3Gi memory, 3 cpu and the policy were backfill: it would start now" in line
    assert document(asking("why", "@latest", "--what-if", "remove=b", "-o", "json"))["whatIf"]["changes"] == {
        "addNodes": [],
        "removeNodes": ["b"],
        "submit": [],
    }


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "nothing to simulate: name a TRACE, or use --from-cluster"),
        (("mine.csv", "--from-cluster"), "use one of them"),
        (("mine.csv", "--remove", "a"), "--remove needs --from-cluster"),
        (("--from-cluster", "--nodes", "3"), "--nodes needs a TRACE"),
        (("--from-cluster", "-o", "csv"), "--from-cluster has no CSV"),
        (("--from-cluster", "--policy", "srpt"), "'srpt' is not a policy of the operator"),
        (("--from-cluster", "--submit", "absent.yaml"), "file absent.yaml not found"),
        (("--from-cluster", "--submit", "bad.yaml"), "bad.yaml: 2 problems"),
    ],
)
def test_arguments_that_do_not_fit_are_said_before_anything_is_read(
    shell: Shell, words: Sequence[str], text: str
) -> None:
    shell.file("mine.csv", "name,submit_s,replicas,duration_s\na,0,1,60\n")
    shell.file("bad.yaml", sleeper("bad", 1).replace('"replicas": 1', '"replicas": -1, "replcas": 2'))

    result = shell("simulate", *words)

    assert (result.code, text in result.err) == (2, True), result.err


def test_a_cluster_that_is_not_running_is_not_simulated(shell: Shell) -> None:
    result = shell("simulate", "--from-cluster")

    assert result.code == 1
    assert "is not running" in result.err
    assert "tarragon up" in result.err
