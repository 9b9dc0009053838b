"""Reads the nodes of a cluster from a file.

groups   YAML: a list of `{count: 4, gpus: 8}`, or `{count: 4, resources: {nvidia.com/gpu: 8}}`
nodes    YAML or JSON, as `kubectl get nodes -o yaml` prints it
CSV      name, gpus; or openb's sn, gpu
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tarragon.base.errors import TarragonError
from tarragon.base.quantity import parse_milli
from tarragon.kube.meta import Json
from tarragon.kube.yaml_reader import read_yaml
from tarragon.scheduling.api.work import THOUSAND
from tarragon.simulator.engine import SimulatedCluster
from tarragon.simulator.traces.table import Row, read_table, read_text

_CSV_COLUMNS = (("name", "gpus"), ("sn", "gpu"))
_REMEDY = "it is a list such as `[{count: 4, gpus: 8}]`, the nodes as kubectl prints them, or CSV with name and gpus"
MAX_NODES = 100_000


def read_cluster(path: Path) -> SimulatedCluster:
    """Read the nodes that have devices. Raises TarragonError."""
    is_csv = path.name.removesuffix(".gz").endswith(".csv")
    found = dict(_from_csv(path) if is_csv else _from_yaml(path))
    return cluster_of(found, str(path))


def cluster_of(devices: Mapping[str, int], source: str) -> SimulatedCluster:
    """Return a cluster of the nodes that have devices. Raises TarragonError if there is none."""
    capacities = {name: count for name, count in devices.items() if count}
    if not capacities:
        raise TarragonError(
            f"no node of {source} has a GPU", remedy="nodes need a resource such as nvidia.com/gpu, or `gpus`"
        )
    return SimulatedCluster(capacities)


def devices_in(allocatable: Mapping[str, str | float]) -> int:
    """Return the GPUs, or other extended resources, of a node. Raises ValueError for what is no amount."""
    amounts = [parse_milli(amount) for name, amount in allocatable.items() if "/" in name]
    return max(amounts, default=0) // THOUSAND


def _from_csv(path: Path) -> Iterator[tuple[str, int]]:
    table = read_table(path)
    columns = next((each for each in _CSV_COLUMNS if table.has(each)), None)
    if columns is None:
        raise TarragonError(f"{path} has no nodes", why=f"its columns are {', '.join(table.columns)}", remedy=_REMEDY)
    name, gpus = columns
    for row in table.rows:
        yield _unique(row, name), row.count(gpus)


def _unique(row: Row, column: str) -> str:
    return row.text(column) or f"line-{row.line}"


def _from_yaml(path: Path) -> Iterator[tuple[str, int]]:
    documents, problems = read_yaml(read_text(path))
    if problems:
        raise TarragonError(f"can't read {path}", why=str(problems[0]), remedy=_REMEDY)
    for number, value in enumerate(value for document in documents for value in _entries(document.value)):
        try:
            yield from _node(value, number)
        except (ValueError, TypeError, AttributeError) as error:
            raise TarragonError(f"can't read entry {number + 1} of {path}", why=str(error), remedy=_REMEDY) from error


def _entries(value: Json) -> Iterator[Json]:
    if isinstance(value, dict) and "items" in value:
        yield from value["items"] or ()
    elif isinstance(value, list):
        yield from value
    else:
        yield value


def _node(entry: Json, number: int) -> Iterator[tuple[str, int]]:
    """Yield a node of Kubernetes that accepts pods, or the nodes of a group."""
    if not isinstance(entry, dict):
        raise TypeError(f"{entry!r} is not a mapping")
    if "status" in entry:
        if not entry.get("spec", {}).get("unschedulable"):
            yield entry["metadata"]["name"], devices_in(entry["status"].get("allocatable") or {})
        return
    unknown = entry.keys() - {"count", "gpus", "resources", "labels", "name"}
    if unknown:
        raise ValueError(f"it has a field {min(map(str, unknown))}, which is not known")
    count, gpus = entry.get("count", 1), entry.get("gpus")
    gpus = devices_in(entry.get("resources") or {}) if gpus is None else gpus
    if not isinstance(count, int) or not isinstance(gpus, int) or gpus < 0 or not 0 <= count <= MAX_NODES:
        raise ValueError("count and gpus are whole numbers from 0 on")
    name = entry.get("name", f"group-{number}")
    yield from ((f"{name}-{index:05}", gpus) for index in range(count))
