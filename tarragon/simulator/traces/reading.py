"""Reads workloads of several shapes, told apart by their columns, and tables of measured speeds.

Pollux   load, workload, name, submit_s, application, gpus, batch_size    speeds by application and batch size
Philly   job, submit_s, gpus, duration_s, vc                              speeds by how much GPU time a job needs
openb    name, num_gpu, creation_time, duration_s                         Amdahl's law
own      name, submit_s, replicas, duration_s; gpus, minimum, maximum,    measured by kind, or Amdahl's law
         kind, queue, parallel
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tarragon.base.errors import TarragonError
from tarragon.simulator.speedups import AmdahlSpeed, Point, ReplicaSpeed, SpeedTable, SpeedTables, with_run_time
from tarragon.simulator.traces.table import Row, Table, read_table
from tarragon.simulator.workload import SpeedModel, TrainingJob, Workload

POLLUX = ("load", "workload", "name", "submit_s", "application", "gpus", "batch_size")
PHILLY = ("job", "submit_s", "gpus", "duration_s", "vc")
OWN = ("name", "submit_s", "replicas", "duration_s")
OPENB = ("name", "num_gpu", "creation_time", "duration_s")
MEASURED = ("kind", "replicas", "rate")
SPEEDS = ("application", "batch_size", "nodes", "gpus", "speed")

MIN_PHILLY_SECONDS = 60.0
"""Shorter jobs of the Philly trace failed at once or tested something; the published evaluations leave them out."""
PHILLY_LEAST_MAXIMUM = 4
"""Nine of ten jobs request one GPU, as they were written for one. Elastic ones would use a node of four."""
DEFAULT_PARALLEL = 0.95
"""The parallel part of a job about which nothing is said: 16 devices are nine times as fast as one."""

_DAY = 86_400.0
_ANY_BATCH = 0
_LARGE = 12
_CLASSES = (
    (1, "cifar10", (2048, 4096)),
    (10, "deepspeech2", (320, 640)),
    (100, "yolov3", (64, 64)),
    (math.inf, "imagenet", (3200, 3200)),
)
"""The application whose speed-up a Philly job gets, by its GPU hours (the classes of Pollux, OSDI'21), and the batch
sizes that are usual in Pollux' workloads: below `_LARGE` GPUs, and from there on.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which jobs of a trace are simulated."""

    load: float = 1.0
    workloads: Sequence[int] = ()
    """Numbers of workloads; all if empty."""
    days: float = math.inf
    max_duration: float = math.inf
    """Longer jobs are cut to so many seconds."""
    speeds: SpeedTables = field(default_factory=dict)
    devices_per_node: int = 4


def read_workloads(path: Path, selection: Selection) -> Sequence[Workload]:
    """Read the selected workloads of a trace. Raises TarragonError."""
    table = read_table(path)
    if table.has(POLLUX):
        found = _pollux(table, selection)
    elif table.has(PHILLY):
        found = [Workload(name=path.name, jobs=list(_philly(table, selection)))]
    elif table.has(OPENB):
        found = [Workload(name=path.name, jobs=list(_openb(table, selection)))]
    elif table.has(OWN):
        found = [Workload(name=path.name, jobs=list(_own(table, selection)))]
    else:
        raise TarragonError(
            f"{path} is not a trace that is known here",
            why=f"its columns are {', '.join(table.columns) or 'missing'}",
            remedy=f"a trace needs at least the columns {', '.join(OWN)}",
        )
    if not any(workload.jobs for workload in found):
        raise TarragonError(f"no job of {path} is selected", remedy="check --load, --workload and --days")
    return found


def read_speeds(path: Path, model: str) -> SpeedTables:
    """Read the speeds of one model (`fixed` or `adaptive` batch sizes), or rates measured by kind. Raises
    TarragonError.
    """
    table = read_table(path)
    if table.has(MEASURED):
        return _measured(table)
    if not table.has(SPEEDS):
        missing = ", ".join(name for name in SPEEDS if name not in table.columns)
        raise TarragonError(
            f"{path} is not a table of speeds",
            why=f"it has no column {missing}",
            remedy=f"it needs the columns {', '.join(MEASURED)} or {', '.join(SPEEDS)}",
        )
    points: dict[tuple[str, int], list[Point]] = {}
    for row in table.rows:
        if "model" not in table.columns or row.text("model") == model:
            point = row.positive("nodes"), row.positive("gpus"), row.amount("speed")
            points.setdefault((row.text("application"), row.count("batch_size")), []).append(point)
    return {key: SpeedTable(found) for key, found in points.items()}


def _measured(table: Table) -> SpeedTables:
    points: dict[str, list[Point]] = {}
    for row in table.rows:
        rate = row.amount("rate")
        if rate == 0:
            raise row.fault("rate", "is no speed")
        nodes = row.positive("nodes") if row.text("nodes") else 1
        points.setdefault(row.text("kind"), []).append((nodes, row.positive("replicas"), rate))
    return {(kind, _ANY_BATCH): SpeedTable(found) for kind, found in points.items()}


def _pollux(table: Table, selection: Selection) -> Sequence[Workload]:
    of_load = [row for row in table.rows if row.amount("load") == selection.load]
    if not of_load:
        loads = sorted({row.amount("load") for row in table.rows})
        raise TarragonError(
            f"{table.path} has no load of {selection.load:g}",
            remedy=f"--load is one of {', '.join(f'{load:g}' for load in loads)}",
        )
    by_number: dict[int, list[TrainingJob]] = {}
    for row in of_load:
        by_number.setdefault(row.count("workload"), []).append(_pollux_job(row, selection))
    missing = [number for number in selection.workloads if number not in by_number]
    if missing:
        raise TarragonError(
            f"{table.path} has no workload {missing[0]}",
            remedy=f"--workload is one of {', '.join(map(str, sorted(by_number)))}",
        )
    chosen = selection.workloads or sorted(by_number)
    return [Workload(name=f"workload-{number}", jobs=by_number[number]) for number in chosen]


def _pollux_job(row: Row, selection: Selection) -> TrainingJob:
    requested = row.positive("gpus")
    application, batch = row.text("application"), row.count("batch_size")
    return TrainingJob(
        name=row.text("name"),
        kind=f"{application}/{batch}",
        submitted_at=row.amount("submit_s"),
        requested=requested,
        minimum=requested,
        maximum=requested,
        speed=_speed(row, selection.speeds, application, batch),
    )


def _philly(table: Table, selection: Selection) -> Iterator[TrainingJob]:
    for row in table.rows:
        seconds, requested = row.amount("duration_s"), row.positive("gpus")
        if row.amount("submit_s") >= selection.days * _DAY or seconds < MIN_PHILLY_SECONDS:
            continue
        seconds = min(seconds, selection.max_duration)
        model = _philly_speed(row, selection.speeds, requested * seconds / 3600)
        placement = -(-requested // selection.devices_per_node), requested
        yield TrainingJob(
            name=row.text("job"),
            kind=f"{row.text('vc')}/{requested}",
            queue=row.text("vc"),
            submitted_at=row.amount("submit_s"),
            requested=requested,
            minimum=requested,
            maximum=requested,
            least_maximum=PHILLY_LEAST_MAXIMUM,
            speed=with_run_time(model, seconds, placement),
        )


def _philly_speed(row: Row, speeds: SpeedTables, gpu_hours: float) -> SpeedTable:
    application, batches = next((name, sizes) for limit, name, sizes in _CLASSES if gpu_hours < limit)
    return _speed(row, speeds, application, batches[row.count("gpus") >= _LARGE])


def _openb(table: Table, selection: Selection) -> Iterator[TrainingJob]:
    """Yield the pods that had GPUs and have run, each as a job with one replica. A part of a GPU counts as a whole."""
    for row in table.rows:
        devices, submitted_at = row.count("num_gpu"), row.amount("creation_time")
        if not devices or not row.text("duration_s") or submitted_at >= selection.days * _DAY:
            continue
        seconds = min(max(1.0, row.amount("duration_s")), selection.max_duration)
        yield TrainingJob(
            name=row.text("name"),
            kind=f"{row.text('qos')}/{devices}",
            submitted_at=submitted_at,
            requested=1,
            minimum=1,
            maximum=1,
            devices=devices,
            speed=with_run_time(AmdahlSpeed(DEFAULT_PARALLEL), seconds, (1, devices)),
        )


def _own(table: Table, selection: Selection) -> Iterator[TrainingJob]:
    for row in table.rows:
        seconds, requested = min(row.amount("duration_s"), selection.max_duration), row.positive("replicas")
        if row.amount("submit_s") >= selection.days * _DAY:
            continue
        if seconds == 0:
            raise row.fault("duration_s", "is no time to run")
        devices = _optional(row, "gpus", 1)
        on_one_node = max(1, selection.devices_per_node // devices)
        placement = -(-requested // on_one_node), requested * devices
        yield TrainingJob(
            name=row.text("name"),
            kind=row.text("kind"),
            queue=row.text("queue"),
            submitted_at=row.amount("submit_s"),
            requested=requested,
            minimum=min(requested, _optional(row, "minimum", requested)),
            maximum=max(requested, _optional(row, "maximum", requested)),
            devices=devices,
            speed=with_run_time(_own_speed(row, selection.speeds, devices), seconds, placement),
        )


def _optional(row: Row, column: str, default: int) -> int:
    return row.positive(column) if row.text(column) else default


def _own_speed(row: Row, speeds: SpeedTables, devices: int) -> SpeedModel:
    measured = speeds.get((row.text("kind"), _ANY_BATCH))
    if measured is not None:
        return ReplicaSpeed(measured, devices)
    parallel = row.amount("parallel") if row.text("parallel") else DEFAULT_PARALLEL
    if parallel > 1:
        raise row.fault("parallel", "is not a part from 0 to 1")
    return AmdahlSpeed(parallel)


def _speed(row: Row, speeds: Mapping[tuple[str, int], SpeedTable], application: str, batch: int) -> SpeedTable:
    found = speeds.get((application, batch))
    if found is None:
        raise TarragonError(
            f"there is no speed for {application} with batch size {batch}, line {row.line} of {row.path}",
            remedy="--speedups names a table of speeds, such as pollux_speed.csv.gz of the Pollux traces",
        )
    return found
