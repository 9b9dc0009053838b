"""What a job waits for that its status says nothing of: another scheduler."""

from __future__ import annotations

from tarragon.cli.jobs import Known
from tarragon.job.phase import Phase
from tarragon.plan.step import Settings

OURS = Settings().scheduler


def other_scheduler(job: Known) -> str:
    """Whom a job waits for that names a scheduler of its own; empty where none of them has to act."""
    if job.job is None or job.status.admission is not None or job.status.phase is not Phase.CREATED:
        return ""
    groups = (group for group in job.job.groups if group.wish)
    named = {str(group.template.get("spec", {}).get("schedulerName") or "") for group in groups}
    others = sorted(named - {"", OURS})
    if not others:
        return ""
    return f"it waits for the scheduler {', '.join(others)}, which its pods name: Tarragon places none of them"
