"""Makes the baselines. Each run has a new one: some keep a state, and chance begins anew."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tarragon.simulator.baselines.dragon_as_coded import DragonAsCoded
from tarragon.simulator.baselines.kube_scheduler import KubeScheduler, Mixed, first_in_first_out
from tarragon.simulator.baselines.oracle import ElasticOracle
from tarragon.simulator.baselines.queues import Easy, PlainBackfill, StrictFifo
from tarragon.simulator.baselines.ranked import Ranked, remaining_service, remaining_time, tiresias
from tarragon.simulator.engine import Scheduler, Timing


@dataclass(frozen=True, slots=True)
class Baseline:
    scheduler: Callable[[Timing, random.Random], Scheduler]
    is_elastic: bool = False
    """Whether jobs have other sizes than what they request."""


BASELINES: Mapping[str, Baseline] = {
    "kube-scheduler": Baseline(lambda *_: KubeScheduler(first_in_first_out)),
    "kube-scheduler-mixed": Baseline(lambda _, chance: KubeScheduler(Mixed(chance))),
    "strict-fifo": Baseline(lambda *_: StrictFifo()),
    "plain-backfill": Baseline(lambda *_: PlainBackfill()),
    "easy": Baseline(lambda *_: Easy()),
    "dragon-as-coded": Baseline(lambda _, chance: DragonAsCoded(chance), is_elastic=True),
    "tiresias": Baseline(lambda *_: Ranked(tiresias)),
    "srpt": Baseline(lambda *_: Ranked(remaining_time)),
    "srsf": Baseline(lambda *_: Ranked(remaining_service)),
    "pollux-like": Baseline(lambda timing, _: ElasticOracle(0.0, timing.restart), is_elastic=True),
    "elastic-oracle": Baseline(lambda timing, _: ElasticOracle(0.3, timing.restart), is_elastic=True),
}
"""By the names of `names.py`."""
