#!/usr/bin/env python3
"""Ten real elastic trainings of three sizes on four local nodes, under `elastic`, `dragon` and `fifo`.

    python bench/real_policies.py [--policy NAME] [--seed N] [--timeline] [--keep FOLDER]

Each policy gets an embedded cluster of its own with four nodes of four CPUs, and the same jobs at the same times: five
short, three medium and two long ones, in random order, as a Poisson process. They are MPIJobs like
examples/mpi/elastic.yaml with 1 to 8 workers, 4 requested, which train on digits with mpi4py and report their steps.

The nodes are this machine, so sixteen workers have only its cores. What a step computes is therefore small, and each
worker *waits* 5 ms for each image of its share, as for a data store that gives every reader the same rate. A step of
120 images takes 600 ms with one worker, 150 with four and 75 with eight, so more workers are nearly as many times as
fast until synchronisation costs more. Speeds are thus made up; the scheduling, the processes, the gradients, and what a
start or a resize costs are real.

The jobs have one to nine minutes of work instead of hours, so `--aged`, `--idle` and `--cool-down` are short: the same
for all policies. What has no option is not scaled: `elastic` stops no job within five minutes of its start.

At the end the steps of each job must add up: see `steps_of`. The exit status is 1 if they don't, or if a job failed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench.support.elastic_trainings import (  # noqa: E402
    SECONDS_A_STEP,
    History,
    Steps,
    Training,
    observing,
    staggered,
    steps_of,
    unsuccessful,
)

PROGRAM = str(Path(sys.executable).parent / "tarragon")
POLICIES = ("elastic", "dragon", "fifo")
NODES = [word for name in "abcd" for word in ("--node", f"name={name},cpu=4,memory=16Gi")]
SLOTS = 16
TIMES = ("--aged", "5", "--idle", "10", "--cool-down", "10")
STEPS: Mapping[str, int] = {"short": 100, "medium": 300, "long": 900}
COUNTS: Mapping[str, int] = {"short": 5, "medium": 3, "long": 2}
SECONDS_APART = 8.0
PATIENCE = 400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of all jobs under one policy."""

    histories: Mapping[str, History]
    steps: Mapping[str, Steps]
    load: float

    @property
    def completion_times(self) -> Sequence[float]:
        return [each.ended_at - each.submitted_at for each in self.histories.values() if each.ended_at is not None]

    @property
    def waits(self) -> Sequence[float]:
        return [each.started_at - each.submitted_at for each in self.histories.values() if each.started_at is not None]

    @property
    def busy(self) -> float:
        """The share of the slots that jobs held, from the first submission to the last end."""
        return sum(each.slot_seconds for each in self.histories.values()) / (SLOTS * self.end)

    @property
    def end(self) -> float:
        return max(each.ended_at or 0.0 for each in self.histories.values())


@contextmanager
def cluster(home: Path, policy: str) -> Iterator[None]:
    """Run an embedded cluster with four nodes."""
    environment = {**os.environ, "TARRAGON_HOME": str(home)}
    command = [PROGRAM, "up", *NODES, "--policy", policy, *TIMES]
    home.mkdir(parents=True)
    with (home / "operator.log").open("w") as log:
        up = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert up.stdout is not None
        if not any("ready" in line for line in up.stdout):
            raise SystemExit(f"the cluster has ended with {up.wait()}: {(home / 'operator.log').read_text()}")
        yield
    finally:
        up.terminate()
        up.wait()
        subprocess.run([PROGRAM, "down"], env=environment, capture_output=True, check=False)


async def measure(home: Path, trainings: Sequence[Training], console: Console) -> Result:
    async with observing(home, console.print) as observer:
        await observer.run(trainings, PATIENCE)
        steps = {each.name: steps_of(each, observer.folder(each)) for each in trainings}
        return Result(histories=observer.histories, steps=steps, load=os.getloadavg()[0])


def show(results: Mapping[str, Result], console: Console) -> None:
    title = f"{sum(COUNTS.values())} trainings on 4 nodes of 4 CPUs; seconds"
    table = Table(
        "policy", "mean", "median", "longest", "wait", "end", "busy", "resizes", "evictions", "redone", "load"
    )
    table.title = title
    for policy, result in results.items():
        times, histories = result.completion_times, result.histories.values()
        table.add_row(
            policy,
            *(f"{number:.1f}" for number in (statistics.mean(times), statistics.median(times), max(times))),
            f"{statistics.mean(result.waits):.1f}",
            f"{result.end:.1f}",
            f"{result.busy:.0%}",
            str(sum(each.resizes for each in histories)),
            str(sum(each.evictions for each in histories)),
            str(sum(each.redone for each in result.steps.values())),
            f"{result.load:.1f}",
        )
    console.print(table)
    means = {policy: statistics.mean(result.completion_times) for policy, result in results.items()}
    for other in [name for name in means if name != "elastic"] if "elastic" in means else []:
        console.print(f"mean of elastic / mean of {other}: {means['elastic'] / means[other]:.2f}")


def show_jobs(trainings: Sequence[Training], results: Mapping[str, Result], console: Console) -> None:
    """What each job took, its sizes, and who did its steps."""
    for policy, result in results.items():
        table = Table(
            "job", "came", "wait", "seconds", "sizes", "starts", "redone", "steps", "of workers", title=policy
        )
        for training in trainings:
            history, steps = result.histories[training.name], result.steps[training.name]
            table.add_row(
                f"{training.name} ({training.steps * SECONDS_A_STEP:.0f} s)",
                f"{history.submitted_at:.1f}",
                f"{(history.started_at or 0.0) - history.submitted_at:.1f}",
                f"{(history.ended_at or 0.0) - history.submitted_at:.1f}",
                " ".join(str(size) for _, size in history.sizes),
                str(steps.starts),
                str(steps.redone),
                f"{steps.total:g}",
                " ".join(f"{share:.0f}" for share in steps.by_worker.values()),
            )
        console.print(table)


def problems(results: Mapping[str, Result]) -> Iterator[str]:
    for policy, result in results.items():
        for name in unsuccessful(result.histories):
            yield f"{policy}: {name} has not succeeded"
        for name, steps in result.steps.items():
            yield from (f"{policy}: {name}: {problem}" for problem in steps.problems)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--policy", action="append", choices=POLICIES, help="only these policies")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeline", action="store_true", help="print each change of a job, too")
    parser.add_argument("--keep", type=Path, help="keep the state and the log of each cluster in this new folder")
    options = parser.parse_args()
    trainings = staggered(STEPS, COUNTS, seed=options.seed, apart=SECONDS_APART)
    console, results = Console(width=130), dict[str, Result]()
    timeline = console if options.timeline else Console(quiet=True)
    with tempfile.TemporaryDirectory() as temporary:
        for policy in options.policy or POLICIES:
            home = (options.keep or Path(temporary)) / policy
            with cluster(home, policy):
                results[policy] = asyncio.run(measure(home, trainings, timeline))
    show_jobs(trainings, results, console)
    show(results, console)
    found = list(problems(results))
    for problem in found:
        console.print(problem)
    if found:
        raise SystemExit(1)
    console.print("The steps of every job add up, and its model is that of one process alone.")


if __name__ == "__main__":
    main()
