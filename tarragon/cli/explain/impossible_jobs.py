"""Finds out, before anything is changed, that this machine can never start a job."""

from __future__ import annotations

from tarragon.base.clock import Clock
from tarragon.cli.explain.changed_cluster import ChangedCluster, ClusterChanges, submitted_job
from tarragon.cli.explain.operator_config import read_published_config
from tarragon.cli.explain.scheduler_view import build_scheduler_view
from tarragon.cli.follow.never_fits import NEVER_FITS_AFTER
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.target import ClusterReader
from tarragon.cli.manifest.loading import LoadedJob
from tarragon.cli.manifest.overrides import cpu_only_hint
from tarragon.cli.manifest.submission import ImpossibleJob
from tarragon.job.model import gang_name
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.scheduling.api.decision import NEVER_FITS, Defer
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.state.memory import Memory


async def require_possible(cluster: ClusterReader, loaded: LoadedJob, former: ClusterJob, clock: Clock) -> None:
    """Raises ImpossibleJob if the job, which would replace `former`, can never start here.

    The answer must last for a moment: a cluster that has just started may not have all its nodes yet.
    """
    if not await why_never(cluster, loaded, clock):
        return
    await clock.sleep(NEVER_FITS_AFTER)
    message = await why_never(cluster, loaded, clock)
    if message:
        raise ImpossibleJob(
            f"{former.name} can never start here: {message}",
            why=f"Nothing is submitted, and the earlier {former.name} ({former.state}) is kept.",
            remedy=cpu_only_hint(loaded.job.get("spec")),
        )


async def why_never(cluster: ClusterReader, loaded: LoadedJob, clock: Clock) -> str:
    """Returns why even the empty cluster could not run the job, in the scheduler's words; empty if it could."""
    decoded = decode_and_validate(loaded.framework, loaded.job)
    if decoded.job is None or decoded.dialect is None:
        return ""
    namespace = loaded.namespace
    new = submitted_job(loaded.framework, loaded.job, decoded.job, decoded.dialect.name, clock.now())
    config = (await read_published_config(cluster, namespace)).config
    changed = ChangedCluster(cluster, ClusterChanges(submitted=[new]))
    view = await build_scheduler_view(changed, namespace, clock, config.rules)
    decisions = () if view.snapshot is None else POLICIES[config.policy](view.snapshot, Memory())
    name = gang_name(loaded.framework.kind, new.key)
    deferred = (each for each in decisions if isinstance(each, Defer) and each.gang == name)
    return next((each.message for each in deferred if each.code == NEVER_FITS), "")
