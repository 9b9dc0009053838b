"""Asks what would become of a cluster's queue with other nodes, another policy or another job."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import click

from tarragon.base import quantity
from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.base.resources import NVIDIA_GPU
from tarragon.cli.explain.changed_cluster import (
    ChangedCluster,
    ClusterChanges,
    RememberedCluster,
    SubmittedJob,
    copies_of,
    nodes_of_shape,
    submitted_job,
)
from tarragon.cli.explain.forbidden_lists import FORBIDDEN_TEXT, SHARES
from tarragon.cli.explain.operator_config import OperatorConfig, read_published_config
from tarragon.cli.explain.scheduler_view import SchedulerView, build_scheduler_view
from tarragon.cli.jobview.jobs import read_job
from tarragon.cli.jobview.target import ClusterReader, ClusterTarget, is_offline_reader
from tarragon.cli.manifest.files import display_name
from tarragon.cli.manifest.loading import InvalidManifest, LoadedJob, Overrides, load_all
from tarragon.cli.manifest.submission import job_exists_error
from tarragon.cli.options.arguments import duration
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.output.words import joined
from tarragon.cli.targets.embedded_nodes import GPU_MEMORY, gpu_memory_label
from tarragon.client.errors import Forbidden, NotFound
from tarragon.job.model import TrainingJob, gang_name
from tarragon.kube.core import Node
from tarragon.kube.field_reader import suggestion
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.node_gpu_sharing import GPU_SHARING_LABEL, GpuSharing
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.objects.desired import is_managed_by_tarragon, is_placed_by
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.scheduling.api.rules import POLICY_NAMES
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.policies import POLICIES
from tarragon.simulator.what_if.expected_runs import expected_runs
from tarragon.simulator.what_if.queue_course import QueueCourse, queue_course

KEYS = ("add-nodes", "remove", "submit", "policy", "run-time")
"""The keys of `why --what-if`, named as the options of `simulate`."""
MAX_ADDED = 1000
"""So many nodes may be added with one option."""
_ADDED = re.compile(r"(\d+)x(.+)", re.ASCII)
_LONGEST_COUNT = 9
"""Longer numbers are not even converted."""


class BadChange(TarragonError):
    """A change that is asked for is not possible. Exit code 2."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedNodes:
    """Nodes to add: as many copies of the node `like`, or nodes with these amounts of resources."""

    count: int
    like: str = ""
    amounts: Mapping[str, str] = field(default_factory=dict)
    gpu_memory: str = ""
    """The memory of each of their GPUs; empty if they do not say."""

    @property
    def text(self) -> str:
        if self.like:
            return f"{self.count} more {'node' if self.count == 1 else 'nodes'} like {self.like}"
        each = {NVIDIA_GPU: f" of {self.gpu_memory} each"} if self.gpu_memory else {}
        amounts = ", ".join(f"{amount} {name}{each.get(name, '')}" for name, amount in self.amounts.items())
        return f"{self.count} more {'node' if self.count == 1 else 'nodes'} with {amounts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What is to be different."""

    added: Sequence[AddedNodes] = ()
    removed: Sequence[str] = ()
    files: Sequence[str] = ()
    """The manifests of jobs to submit."""
    policies: Sequence[str] = ()
    """Each of them is tried; by default the policy of the operator."""
    run_time: float | None = None
    """The seconds that a job of which nothing is known runs."""

    @property
    def is_different(self) -> bool:
        return bool(self.added or self.removed or self.files or self.policies)

    @property
    def text(self) -> str:
        """The changes of the cluster, as the end of a sentence that begins with `with`; empty if there are none."""
        parts = [each.text for each in self.added]
        if self.files:
            parts.append(joined([f"the jobs of {display_name(name)}" for name in dict.fromkeys(self.files)]))
        if self.removed:
            names = joined([f"node {name}" for name in self.removed])
            return f"{joined(parts)} and without {names}" if parts else f"without {names}"
        return joined(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What becomes of the queue in one case."""

    policy: str
    snapshot: Snapshot
    course: QueueCourse


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfResult:
    """What becomes of the queue as it is, and what would."""

    asked: WhatIf
    config: OperatorConfig
    finished: int
    """The number of finished jobs on which run times are based."""
    baseline: Scenario
    """By the operator's own policy, without changes."""
    scenarios: Sequence[Scenario] = ()
    """One for each policy that was asked for."""
    submitted: frozenset[str] = frozenset()
    """Names of the gangs of submitted jobs."""


def added_nodes(text: str) -> AddedNodes:
    """Parse `4xNODE`, or `4xnvidia.com/gpu=8,gpu-memory=16Gi,cpu=32`. Raises BadChange."""
    match = _ADDED.fullmatch(text.strip())
    if match is None:
        raise BadChange(
            f"{text!r} does not say which nodes to add",
            remedy="use COUNTxNODE for copies of a node, such as 4xgpu-1, or COUNTxNAME=AMOUNT,..., such as "
            "4xnvidia.com/gpu=8,cpu=32,memory=256Gi",
        )
    number = int(match[1]) if len(match[1]) <= _LONGEST_COUNT else MAX_ADDED + 1
    if not 1 <= number <= MAX_ADDED:
        raise BadChange(f"{text!r} adds {match[1]} nodes", remedy=f"add 1 to {MAX_ADDED}")
    if "=" not in match[2]:
        return AddedNodes(count=number, like=match[2])
    amounts = dict(_amount(text, part) for part in match[2].split(","))
    memory = amounts.pop(GPU_MEMORY, "")
    return _with_valid_gpu_memory(text, AddedNodes(count=number, amounts=amounts, gpu_memory=memory))


def known_policy(name: str) -> str:
    """Return the name of a policy of the operator. Raises BadChange, with a suggestion, for another one."""
    if name in POLICY_NAMES:
        return name
    remedy = suggestion(name, POLICY_NAMES) or f"its policies are {joined(POLICY_NAMES)}"
    raise BadChange(f"{name!r} is not a policy of the operator", remedy=remedy)


def what_if_of(
    *,
    added: Sequence[str],
    removed: Sequence[str],
    files: Sequence[str],
    policies: Sequence[str],
    run_time: float | None,
) -> WhatIf:
    """Read what the options say. Raises BadChange for what is not possible in any cluster."""
    return WhatIf(
        added=[added_nodes(text) for text in added],
        removed=list(dict.fromkeys(removed)),
        files=files,
        policies=[known_policy(name) for name in dict.fromkeys(policies)],
        run_time=run_time,
    )


def what_if_of_pairs(pairs: Sequence[tuple[str, str]]) -> WhatIf:
    """Read `KEY=VALUE` pairs. Raises BadChange, for a key that does not exist with the nearest one that does."""
    values: dict[str, list[str]] = {key: [] for key in KEYS}
    for key, value in pairs:
        if key not in values:
            remedy = suggestion(key, KEYS) or f"use one of {joined(KEYS)}"
            raise BadChange(f"--what-if does not know {key!r}", remedy=remedy)
        values[key].append(value)
    run_times = [duration(text) for text in values["run-time"]]
    return what_if_of(
        added=values["add-nodes"],
        removed=values["remove"],
        files=values["submit"],
        policies=values["policy"],
        run_time=run_times[-1] if run_times else None,
    )


def load_jobs(target: ClusterTarget, settings: GlobalOptions, asked: WhatIf) -> Sequence[LoadedJob]:
    """Read the manifests and validate them, as `submit` does. Raises InvalidManifest with all problems of a file."""
    found: list[LoadedJob] = []
    for name in asked.files:
        for loaded in load_all(target, settings, name, Overrides()):
            job = _decoded(loaded)
            reason = _why_not_scheduled(job)
            if reason:
                raise InvalidManifest(f"{display_name(name)}: {job.key.name} would not be queued", why=reason)
            found.append(loaded)
    return found


async def ask_what_if(
    reader: ClusterReader, target: ClusterTarget, asked: WhatIf, jobs: Sequence[LoadedJob], clock: Clock
) -> WhatIfResult:
    """Play the queue of the cluster forward as it is, and as asked. Raises TarragonError if it can't be read."""
    if is_offline_reader(reader):
        raise TarragonError(
            f"the queue of {target.name} can't be simulated",
            why="the cluster is not running, so nothing in it will start or end",
            remedy="start it with `tarragon up`",
        )
    remembered, namespace = RememberedCluster(reader), target.namespace
    config = await read_published_config(reader, namespace)
    rules = config.config.rules
    view = await build_scheduler_view(remembered, namespace, clock, rules)
    before = _complete_snapshot(view, config, target)
    runs = expected_runs(before, view.outlook, asked.run_time)
    baseline = _scenario(before, queue_course(before, runs, POLICIES[config.config.policy]), config.config.policy)
    result = WhatIfResult(asked=asked, config=config, finished=view.outlook.estimates.finished, baseline=baseline)
    if not asked.is_different:
        return result
    submitted = [job async for job in _submitted(reader, target, jobs, clock)]
    changes = replace(_changed_nodes(asked, view.nodes), submitted=submitted)
    after, changed_runs = before, runs
    if asked.text:
        changed = await build_scheduler_view(ChangedCluster(remembered, changes), namespace, clock, rules)
        after = replace(_complete_snapshot(changed, config, target), now=before.now)
        # What a job needs does not depend on the changes.
        changed_runs = {**expected_runs(after, changed.outlook, asked.run_time), **runs}
    return replace(
        result,
        scenarios=[
            _scenario(after, queue_course(after, changed_runs, POLICIES[policy]), policy)
            for policy in asked.policies or [config.config.policy]
        ],
        submitted=frozenset(gang_name(job.framework.kind, job.key) for job in submitted),
    )


def _scenario(snapshot: Snapshot, course: QueueCourse, policy: str) -> Scenario:
    return Scenario(policy=policy, snapshot=snapshot, course=course)


def _complete_snapshot(view: SchedulerView, config: OperatorConfig, target: ClusterTarget) -> Snapshot:
    """Return what the scheduler sees. Raises TarragonError if this user does not see all of it."""
    unseen = [*view.forbidden, *([SHARES] if config.hides_shares else [])]
    if unseen or view.snapshot is None:
        missing = joined([FORBIDDEN_TEXT[each] for each in unseen]) or "what the scheduler sees"
        raise TarragonError(
            f"the queue of {target.name} can't be simulated",
            why=f"you may not list {missing}",
            remedy="ask an administrator for the rights that `tarragon docs scheduling#what-users-may-see` lists",
        )
    return view.snapshot


def _changed_nodes(asked: WhatIf, nodes: Sequence[Node]) -> ClusterChanges:
    by_name = {node.metadata.name: node for node in nodes}
    for name in asked.removed:
        _require_node(name, by_name)
    added: dict[str, Node] = {}
    methods = {node.metadata.labels.get(GPU_SHARING_LABEL, "") for node in nodes}
    # A new node shares its GPUs as all the others do. HAMi would have to report its GPUs first.
    method = methods.pop() if len(methods) == 1 else ""
    method = GpuSharing.ANCHOR if method == GpuSharing.HAMI else method
    sharing = {GPU_SHARING_LABEL: method} if method else {}
    for each in asked.added:
        taken = {*by_name, *added}
        if each.like:
            new = copies_of(_require_node(each.like, by_name), each.count, taken)
        else:
            new = nodes_of_shape(each.amounts, {**sharing, **_gpu_memory_label(each)}, each.count, taken)
        added |= {node.metadata.name: node for node in new}
    return ClusterChanges(added=list(added.values()), removed=frozenset(asked.removed))


def _require_node(name: str, by_name: Mapping[str, Node]) -> Node:
    if name in by_name:
        return by_name[name]
    known = joined(sorted(by_name)) or "none"
    raise BadChange(
        f"there is no node {name!r}", remedy=suggestion(name, by_name) or f"the nodes of this cluster are {known}"
    )


async def _submitted(
    reader: ClusterReader, target: ClusterTarget, jobs: Sequence[LoadedJob], clock: Clock
) -> AsyncIterator[SubmittedJob]:
    """Yield the jobs as the cluster would have them. Raises TarragonError if one of their names is in use."""
    taken: set[tuple[str, Key]] = set()
    for loaded in jobs:
        job, number = _decoded(loaded), 1
        key = job.key
        while (loaded.framework.kind, key) in taken:
            number += 1
            key = Key(job.key.namespace, f"{job.key.name}-{number}")
        taken.add((loaded.framework.kind, key))
        await _require_free(reader, target, loaded, key)
        dialect = decode_and_validate(loaded.framework, _named(loaded)).dialect
        assert dialect is not None  # noqa: S101 - a job that was decoded has one
        # Times have whole seconds: a moment later, so that no job that is there comes after it.
        queued_at = clock.now() + dt.timedelta(seconds=len(taken))
        yield submitted_job(loaded.framework, loaded.job, replace(job, key=key), dialect.name, queued_at)


async def _require_free(reader: ClusterReader, target: ClusterTarget, loaded: LoadedJob, key: Key) -> None:
    try:
        former = read_job(loaded.framework, await reader.get(loaded.framework.resource, key))
    except (NotFound, Forbidden):
        return
    if not former.status.phase.is_final:
        raise job_exists_error(former, target)


def _named(loaded: LoadedJob) -> Mapping[str, object]:
    """Return the job with a name, where the server would generate one."""
    metadata = loaded.job["metadata"]
    name = metadata.get("name") or f"{metadata.get('generateName', 'job-')}new"
    return {**loaded.job, "metadata": {**metadata, "name": name}}


def _decoded(loaded: LoadedJob) -> TrainingJob:
    job = decode_and_validate(loaded.framework, _named(loaded)).job
    assert job is not None  # noqa: S101 - `load_all` has validated it
    return job


def _why_not_scheduled(job: TrainingJob) -> str:
    if job.run_policy.suspend:
        return "it is suspended (runPolicy.suspend)"
    if not is_managed_by_tarragon(job):
        return f"managedBy leaves it to {job.run_policy.managed_by}"
    if not is_placed_by(job, OperatorSettings().scheduler_name):
        return "its pods name another scheduler (schedulerName), which Tarragon does not simulate"
    return ""


def _gpu_memory_label(nodes: AddedNodes) -> Mapping[str, str]:
    capacity = {name: quantity.parse_milli(amount) for name, amount in nodes.amounts.items()}
    return gpu_memory_label(nodes.gpu_memory or None, capacity)


def _with_valid_gpu_memory(text: str, nodes: AddedNodes) -> AddedNodes:
    """Return the nodes. Raises BadChange if they can't have GPUs with this memory."""
    try:
        _gpu_memory_label(nodes)
    except click.BadParameter as error:
        summary, _, remedy = error.message.partition("; ")
        raise BadChange(f"{summary}, in {text!r}", remedy=remedy or f"write for example {GPU_MEMORY}=16Gi") from error
    return nodes


def _amount(text: str, part: str) -> tuple[str, str]:
    name, sign, amount = part.strip().partition("=")
    try:
        is_positive = bool(name and sign) and quantity.parse_milli(amount) > 0
    except ValueError:
        is_positive = False
    if not is_positive:
        raise BadChange(
            f"{part.strip()!r} in {text!r} is not an amount of a resource", remedy="use NAME=AMOUNT: cpu=32"
        )
    return name, amount
