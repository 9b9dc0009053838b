"""The public traces as workloads of the simulator."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tarragon.simulator.comparison import Comparison
from tarragon.simulator.engine import SimulatedCluster, Timing
from tarragon.simulator.speedups import AmdahlSpeed, with_run_time
from tarragon.simulator.traces.reading import Selection, read_speeds, read_workloads
from tarragon.simulator.workload import BoundsRule, TrainingJob, Workload, with_bounds

FOUR_GPUS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Jobs of a trace on nodes of four GPUs."""

    trace: str
    nodes: int = 16
    bounds: BoundsRule
    load: float = 1.0
    workloads: Sequence[int] = ()
    days: float = math.inf
    max_duration: float = math.inf
    is_progress_reported: bool = True

    def comparison(self, folder: Path) -> Comparison:
        selection = Selection(
            load=self.load,
            workloads=self.workloads,
            days=self.days,
            max_duration=self.max_duration,
            speeds=read_speeds(folder / "pollux_speed.csv.gz", "fixed"),
            devices_per_node=FOUR_GPUS,
        )
        return comparison_of(read_workloads(folder / self.trace, selection), self)


def comparison_of(workloads: Sequence[Workload], scene: Scene) -> Comparison:
    return Comparison(
        workloads=[replace(each, jobs=[with_bounds(job, scene.bounds) for job in each.jobs]) for each in workloads],
        cluster=SimulatedCluster.of_equal(scene.nodes, FOUR_GPUS),
        timing=Timing(),
        is_progress_reported=scene.is_progress_reported,
    )


def synthetic(jobs: int, nodes: int, seed: int) -> Workload:
    """Jobs of eight hours that keep so many nodes busy: the more nodes, the larger the jobs."""
    chance = random.Random(seed)
    largest = max(1, nodes * FOUR_GPUS * 40 // jobs)
    made = [_job(index, chance.uniform(0, 8 * 3600), chance.randint(1, largest), chance) for index in range(jobs)]
    return Workload(name="synthetic", jobs=sorted(made, key=lambda job: (job.submitted_at, job.name)))


def _job(index: int, at: float, size: int, chance: random.Random) -> TrainingJob:
    seconds = chance.lognormvariate(6.5, 1.0)
    speed = with_run_time(AmdahlSpeed(0.95), seconds, (-(-size // FOUR_GPUS), size))
    return TrainingJob(
        name=f"job-{index:05}",
        kind=str(index % 20),
        submitted_at=at,
        requested=size,
        minimum=size,
        maximum=size,
        speed=speed,
    )
