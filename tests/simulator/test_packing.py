"""Packing of whole GPUs and of parts: on a small cluster by hand, and on openb, where FGD allocates 95.2 %."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from tarragon.base.errors import TarragonError
from tarragon.cli.main import root_command
from tarragon.simulator.packing import BEST_FIT, WHOLE_GPUS, pack, read_packing_trace

TRACES = os.environ.get("TARRAGON_TRACES", "")
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,1024,2,T4\nn2,64000,1024,0,\nn3,64000,1024,2,T4\n"
HALVES = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,1,1,500\nb,1000,1,1,500\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    tasks, nodes = tmp_path / "tasks.csv", tmp_path / "nodes.csv"
    tasks.write_text(HALVES)
    nodes.write_text(NODES)
    return tasks, nodes


@pytest.mark.parametrize("policy", ["fifo", "backfill", "dragon", "elastic", BEST_FIT])
def test_halves_fill_all_gpus(files: tuple[Path, Path], policy: str) -> None:
    found = pack(read_packing_trace(*files), policy, seed=1)

    assert found.allocated == {0.9: 1.0, 0.95: 1.0, 1.0: 1.0, 1.1: 1.0, 1.3: 1.0}
    assert found.refused == 0


def test_without_sharing_a_half_takes_a_whole_gpu(files: tuple[Path, Path]) -> None:
    found = pack(read_packing_trace(*files), WHOLE_GPUS, seed=1)

    assert found.allocated[1.0] == 0.5
    assert found.refused == 4


def test_the_command_shows_a_row_for_each_policy(files: tuple[Path, Path]) -> None:
    tasks, nodes = files
    done = CliRunner().invoke(root_command, ["simulate", str(tasks), "--packing", "--cluster", str(nodes)])

    assert done.exit_code == 0, done.output
    header, ours, best_fit, whole = (line.split() for line in done.output.splitlines())
    assert header[0] == "POLICY"
    assert [ours[0], best_fit[0], whole[0]] == ["backfill", "best-fit", "whole-gpus"]
    assert ours[3] == "100.00%"
    assert whole[3] == "50.00%"


def test_the_command_prints_json(files: tuple[Path, Path]) -> None:
    tasks, nodes = files
    asked = ["simulate", str(tasks), "--packing", "--cluster", str(nodes), "--policy", "fifo", "-o", "json"]
    done = CliRunner().invoke(root_command, asked)

    (found,) = json.loads(done.output)["packings"]
    assert found["policy"] == "fifo"
    assert found["allocated"]["1"] == 1.0


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["--nodes", "4"], "--nodes does not go with --packing"),
        ([], "--packing needs --cluster"),
        (["--policy", "tiresias"], "does not pack"),
    ],
)
def test_what_does_not_go_with_packing_is_reported(files: tuple[Path, Path], asked: list[str], why: str) -> None:
    done = CliRunner().invoke(root_command, ["simulate", str(files[0]), "--packing", *asked])

    assert done.exit_code == 2
    assert why in done.output


def test_a_table_without_the_columns_is_reported(files: tuple[Path, Path]) -> None:
    with pytest.raises(TarragonError, match="can't pack"):
        read_packing_trace(files[1], files[1])


@pytest.mark.skipif(not TRACES, reason="TARRAGON_TRACES names no folder")
def test_on_openb_more_is_allocated_than_by_fgd() -> None:
    folder = Path(TRACES)
    trace = read_packing_trace(folder / "openb_pods.csv.gz", folder / "openb_nodes.csv.gz")

    found = pack(trace, "backfill", seed=1)

    assert found.allocated[1.0] >= 0.952
