"""The entry point of reconciling one job: a chain of rules, of which the first that returns a step decides."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from tarragon.frameworks.plugin import Framework
from tarragon.plan.lifecycle.force_delete import force_deletes, next_force_delete_at
from tarragon.plan.lifecycle.graceful_eviction import evict_pods
from tarragon.plan.lifecycle.owned_object_control import notices_of_changes, patches_of_watched
from tarragon.plan.lifecycle.pod_control import next_start_at, objects_to_create, pods_to_evict, services_to_delete
from tarragon.plan.reconcile.adoption import await_admission
from tarragon.plan.reconcile.finish import clean_up, reconcile_finished
from tarragon.plan.reconcile.generation import record_generation
from tarragon.plan.reconcile.invalid_spec import reconcile_invalid, with_last_valid_spec
from tarragon.plan.reconcile.managed_by import left_to_other_events, other_manager
from tarragon.plan.reconcile.manager_on_record import is_managed_by_other
from tarragon.plan.reconcile.podgroups import with_pod_group_actions
from tarragon.plan.reconcile.suspend import reconcile_resumed, reconcile_suspended
from tarragon.plan.reconcile.tensorboard import with_tensorboard_actions
from tarragon.plan.status.creation_failures import next_check_at
from tarragon.plan.status.limits import deadline_at, expires_at
from tarragon.plan.status.outcome import compute_status
from tarragon.plan.status.patch import events_for, status_patch
from tarragon.plan.view.actions import Actions, ObservedJob
from tarragon.plan.view.job_view import JobView, build_job_view


def decide(framework: Framework, observed: ObservedJob, now: dt.datetime) -> Actions:
    """Return what to do about the job now. Deciding again after the step was applied converges to an empty step."""
    return _decide(framework, observed, now, reconcile_active)


def decide_status(framework: Framework, observed: ObservedJob, now: dt.datetime) -> Actions:
    """Return the same as `decide` about the job's status. All other actions may be missing."""
    return _decide(framework, observed, now, report_active)


def _decide(
    framework: Framework, observed: ObservedJob, now: dt.datetime, act: Callable[[JobView], Actions]
) -> Actions:
    if observed.object.metadata.is_being_deleted or is_managed_by_other(observed.object.spec):
        return Actions()  # Garbage collection deletes the pods and services of a deleted job by their owner reference.
    other = other_manager(framework.kind, observed)
    if other is not None:
        return Actions(events=left_to_other_events(framework.resource, observed.object, other))
    decoded = observed.decoded
    effective = with_last_valid_spec(framework, observed.object, decoded)
    step = record_generation(framework, observed, decoded) or reconcile_invalid(framework, observed, effective, now)
    view = build_job_view(framework, observed, effective, now)
    if step is not None or view is None:
        return step or Actions()
    step = (
        reconcile_finished(view)
        or reconcile_suspended(view)
        or reconcile_resumed(view)
        or await_admission(view)
        or act(view)
    )
    return with_tensorboard_actions(view, with_pod_group_actions(view, step))


def report_active(view: JobView) -> Actions:
    """Record what has happened, and do nothing about it."""
    status = compute_status(view)
    return Actions(status_patch=status_patch(view, status), events=events_for(view, status))


def reconcile_active(view: JobView) -> Actions:
    """Handle the usual case: record what has happened, create missing objects and delete superfluous ones."""
    status = compute_status(view)
    if status.phase.is_final:
        return Actions(
            status_patch=status_patch(view, status),
            deletes=clean_up(view, status),
            events=events_for(view, status),
            requeue_at=expires_at(view.job, status),
        )
    evictions = evict_pods(view, pods_to_evict(view, status))
    keeps_current = view.may_run and not view.is_spec_invalid
    wakes = (
        deadline_at(view.job, status),
        next_start_at(view, status),
        next_check_at(view, status),
        evictions.next_deletion_at,
        next_force_delete_at(view),
        view.next_review_at,
    )
    return Actions(
        status_patch=status_patch(view, status),
        annotations=[*evictions.annotations, *(notices_of_changes(view) if keeps_current else ())],
        deletes=[*evictions.deletes, *force_deletes(view), *services_to_delete(view)],
        patches=list(patches_of_watched(view)) if keeps_current else [],
        creates=objects_to_create(view, status),
        events=events_for(view, status),
        requeue_at=min((at for at in wakes if at is not None), default=None),
    )
