"""Elastic MPI trainings on an embedded cluster: their manifests, what becomes of them, and whether steps add up."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bench.support.reading_training import BATCH_SIZE, JOURNALS, RESULT, Model
from tarragon.base.clock import SystemClock
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig
from tarragon.client.informer.informer import Informer
from tarragon.frameworks.mpi.manifest.crd import MPIJOBS
from tarragon.job.phase import Phase
from tarragon.job.status import JobStatus
from tarragon.job.status_encoding import decode_status
from tarragon.kube.core import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS
from tarragon.kube.meta import CustomObject, Key, Resource
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import read_server

Json = dict[str, Any]
EXAMPLE = Path(__file__).parents[2] / "examples" / "mpi" / "elastic.yaml"
PROGRAM = Path(__file__).parent / "reading_training.py"
SCRIPTS = "digits-elastic-scripts"
NAMESPACE = "default"
MINIMUM, REQUESTED, MAXIMUM = 1, 4, 8
IMAGE_SECONDS = 0.005
"""The time to read one image, so a batch of 120 takes one worker 0.6 s, and each of eight workers 75 ms."""
SECONDS_A_STEP = BATCH_SIZE * IMAGE_SECONDS
"""The work of a step, in seconds of one worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """An elastic job to submit."""

    name: str
    steps: int
    submitted_after: float = 0.0
    """Seconds after the beginning."""


def staggered(steps: Mapping[str, int], counts: Mapping[str, int], *, seed: int, apart: float) -> Sequence[Training]:
    """Return trainings of several sizes in random order, which arrive as a Poisson process. Equal seeds are equal."""
    chance = random.Random(seed)
    sizes = [size for size, count in counts.items() for _ in range(count)]
    chance.shuffle(sizes)
    trainings, numbers, at = [], Counter[str](), 0.0
    for size in sizes:
        numbers[size] += 1
        trainings.append(Training(name=f"{size}-{numbers[size]}", steps=steps[size], submitted_after=at))
        at += chance.expovariate(1 / apart)
    return trainings


# ------------------------------------------------------------------------------------------------------------ manifests


def scripts() -> Json:
    """Return the ConfigMap of the example with its driver, and with our training."""
    _, found, _ = _example()
    found["data"]["train.py"] = PROGRAM.read_text()
    return found


def claim_and_job(training: Training) -> tuple[Json, Json]:
    """Return a claim for the checkpoints and the job of the example, with 1 to 8 workers of one CPU each."""
    claim, _, job = _example()
    claim["metadata"]["name"] = claim_name = f"{training.name}-models"
    job["metadata"]["name"] = training.name
    job["spec"]["elasticPolicy"] = {"minReplicas": MINIMUM, "maxReplicas": MAXIMUM}
    groups = job["spec"]["mpiReplicaSpecs"]
    groups["Worker"]["replicas"] = REQUESTED
    for group in groups.values():
        [models] = [volume for volume in group["template"]["spec"]["volumes"] if volume["name"] == "models"]
        models["persistentVolumeClaim"]["claimName"] = claim_name
    [launcher], [worker] = (groups[name]["template"]["spec"]["containers"] for name in ("Launcher", "Worker"))
    worker["resources"] = {"requests": {"cpu": "1"}}
    launcher["command"] += ["--steps", str(training.steps), "--image-seconds", str(IMAGE_SECONDS)]
    return claim, job


def _example() -> tuple[Json, Json, Json]:
    claim, config_map, job = yaml.safe_load_all(EXAMPLE.read_text())
    for group in job["spec"]["mpiReplicaSpecs"].values():  # the example writes them once, with anchors
        group["template"] = yaml.safe_load(yaml.safe_dump(group["template"]))
    return claim, config_map, job


# --------------------------------------------------------------------------------------------------------- observations


@dataclass(slots=True)
class History:
    """What became of a job. Times are in seconds since the beginning."""

    submitted_at: float
    started_at: float | None = None
    """When it was admitted first."""
    ended_at: float | None = None
    sizes: list[tuple[float, int]] = field(default_factory=list)
    """The sizes that it was admitted with; 0 after it was stopped."""
    status: JobStatus = field(default_factory=JobStatus)

    @property
    def resizes(self) -> int:
        """How often it went from one size to another while it ran."""
        return sum(bool(before and after) for (_, before), (_, after) in pairwise(self.sizes))

    @property
    def slot_seconds(self) -> float:
        """The sum of its sizes over time."""
        ends = [*(at for at, _ in self.sizes[1:]), self.ended_at or 0.0]
        return sum(size * (end - at) for (at, size), end in zip(self.sizes, ends, strict=False))

    @property
    def evictions(self) -> int:
        return sum(not size for _, size in self.sizes)

    def observe(self, status: JobStatus, now: float) -> None:
        self.status = status
        if status.phase.is_final:
            self.ended_at = now if self.ended_at is None else self.ended_at
            return
        admission = status.admission
        size = (
            0
            if admission is None or admission.admitted_at is None
            else sum(count for kind, count in admission.size.items() if str(kind) == "Worker")
        )
        if size and self.started_at is None:
            self.started_at = now
        if size != (self.sizes[-1][1] if self.sizes else 0):
            self.sizes.append((now, size))


class Observer:
    """Submits trainings to an embedded cluster and follows them until all have ended."""

    def __init__(self, client: HttpClient, home: Path, told: Callable[[str], None]) -> None:
        self.histories: dict[str, History] = {}
        self.client = client
        self._home = home
        self._told = told
        self._begin = time.monotonic()
        self._changed = asyncio.Event()
        self._jobs = Informer(client, MPIJOBS, SystemClock(), jitter=random.Random(1))
        self._jobs.add_event_handler(lambda key, _, job: self._observe(key, job))

    async def run(self, trainings: Sequence[Training], seconds: float) -> None:
        """Submit each training at its time. Return when all have ended. Raises TimeoutError after so many seconds."""
        watching = asyncio.create_task(self._jobs.run())
        try:
            await self._create(CONFIG_MAPS, scripts())
            self._begin = time.monotonic()
            async with asyncio.timeout(seconds):
                for training in trainings:
                    await asyncio.sleep(self._begin + training.submitted_after - time.monotonic())
                    await self.submit(training)
                await self.until(lambda: all(each.ended_at is not None for each in self.histories.values()))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def submit(self, training: Training) -> None:
        claim, job = claim_and_job(training)
        await self._create(PERSISTENT_VOLUME_CLAIMS, claim)
        self.histories[training.name] = History(self._now())
        await self._create(MPIJOBS, job)

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait for a claim about the histories to become true."""
        while not is_true():
            self._changed.clear()
            await self._changed.wait()

    def has_reported(self, name: str, steps: int) -> bool:
        """Whether the job has reported at least so many steps."""
        history = self.histories.get(name)
        progress = history.status.progress if history is not None else None
        return progress is not None and (progress.done or 0) >= steps

    def folder(self, training: Training) -> Path:
        """Return the folder with the checkpoints and the journals of a job."""
        return Home(self._home).nodes / "_claims" / NAMESPACE / f"{training.name}-models"

    async def _create(self, resource: Resource[Any], body: Json) -> None:
        body["metadata"]["namespace"] = NAMESPACE
        await self.client.create(resource, body)

    def _now(self) -> float:
        return time.monotonic() - self._begin

    def _observe(self, key: Key, job: CustomObject | None) -> None:
        history = self.histories.get(key.name)
        if history is None or job is None or not job.status:
            return
        before = history.status.phase, len(history.sizes)
        history.observe(decode_status(job.status), self._now())
        if (history.status.phase, len(history.sizes)) != before:
            size = history.sizes[-1][1] if history.sizes else 0
            self._told(f"{self._now():6.1f} s  {key.name}: {history.status.phase}, {size} workers")
        self._changed.set()


@asynccontextmanager
async def observing(home: Path, told: Callable[[str], None]) -> AsyncIterator[Observer]:
    """Connect to the cluster of a home."""
    place = Home(home)
    server = read_server(place)
    if server is None:
        raise OSError(f"no server in {home}")
    config = RestConfig(url=server.url, ca_data=place.ca.read_bytes(), token=place.read_token())
    async with HttpClient(config, random.Random(1)) as client:
        yield Observer(client, home, told)


# ---------------------------------------------------------------------------------------------------------------- steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Which worker did how much of a training, as its journals tell."""

    by_worker: Mapping[str, float]
    """The steps that count, by worker: a worker that did a quarter of the images of a step has a quarter of it."""
    redone: int
    """Steps that were begun and lost, because all ranks started again from an older checkpoint."""
    starts: int
    """How often the ranks started."""
    problems: Sequence[str]
    """Why the steps do not add up."""

    @property
    def total(self) -> float:
        return sum(self.by_worker.values())


@dataclass(frozen=True, slots=True)
class _Run:
    """The journals of one start of all ranks."""

    first: int
    images: Mapping[int, Mapping[str, int]]
    """By step and worker."""


def steps_of(training: Training, folder: Path) -> Steps:
    """Add up the journals of a training that has ended, and compare its model with that of one process alone.

    Of each start of the ranks the steps count up to the one from which the next start continued.
    """
    runs = [run for number in _numbers(folder / JOURNALS) for run in _read_run(folder / JOURNALS, number)]
    ends = [*(run.first for run in runs[1:]), training.steps][: len(runs)]
    images: Counter[str] = Counter()
    problems: list[str] = []
    counted: list[int] = []
    redone: set[tuple[int, int]] = set()
    for number, (run, end) in enumerate(zip(runs, ends, strict=True)):
        for step, shares in sorted(run.images.items()):
            if step >= end:
                redone.add((number, step))
                continue
            counted.append(step)
            images.update(shares)
            if sum(shares.values()) != BATCH_SIZE:
                problems.append(f"step {step} has {sum(shares.values())} images instead of {BATCH_SIZE}")
    if counted != list(range(training.steps)):
        problems.append(f"{len(counted)} steps count, of which {len(set(counted))} are different, of {training.steps}")
    if images.total() != training.steps * BATCH_SIZE:
        problems.append(f"{images.total()} images were trained on instead of {training.steps * BATCH_SIZE}")
    problems += _problems_of_model(training, folder)
    by_worker = {worker: count / BATCH_SIZE for worker, count in sorted(images.items())}
    return Steps(by_worker=by_worker, redone=len(redone), starts=len(runs), problems=problems)


def _problems_of_model(training: Training, folder: Path) -> Sequence[str]:
    if not (folder / RESULT).exists():
        return ["there is no result"]
    with np.load(folder / RESULT) as saved:
        step, weights = int(saved["step"]), saved["weights"]
    if step != training.steps:
        return [f"the result is of step {step} instead of {training.steps}"]
    alone = Model()
    for number in range(training.steps):
        alone.apply(alone.gradient(alone.batch(number)))
    if not np.allclose(weights, alone.weights, rtol=0, atol=1e-9):
        return [f"the model differs by up to {np.abs(weights - alone.weights).max():.2g} from that of one process"]
    return []


def _numbers(journals: Path) -> Sequence[int]:
    return sorted({int(path.name.partition("-")[0]) for path in journals.glob("*-*")})


def _read_run(journals: Path, number: int) -> Iterator[_Run]:
    """Read the journals of all ranks. Yield nothing if they were killed before they began.

    The last line of a rank that was killed may be incomplete: its step is lost.
    """
    images: dict[int, Counter[str]] = {}
    firsts: set[int] = set()
    for path in sorted(journals.glob(f"{number:04}-*")):
        head, *rows = path.read_text().split("\n")
        if not rows:
            continue
        worker, first = head.split()
        firsts.add(int(first))
        for row in rows[:-1]:
            step, count = map(int, row.split())
            images.setdefault(step, Counter())[worker] += count
    if firsts:
        yield _Run(min(firsts), images)


def unsuccessful(histories: Mapping[str, History]) -> Sequence[str]:
    return [name for name, history in histories.items() if history.status.phase is not Phase.SUCCEEDED]
