"""Validation rules of jobs with a list of replicas, whose object names differ from those of later generations."""

from __future__ import annotations

from collections.abc import Iterator

from tarragon.base.errors import Problem
from tarragon.frameworks.plugin import Names, Rule
from tarragon.frameworks.tensorflow.fields import Spec
from tarragon.frameworks.tensorflow.listed_wiring import habits
from tarragon.frameworks.tensorflow.wiring import LONGEST, tf_config_length
from tarragon.job.model import Replica, TrainingJob
from tarragon.kube.names import LONGEST_LABEL, fault_of_label_name


def rules(names: Names) -> tuple[Rule, ...]:
    """The `rules` of a dialect."""

    def names_fit(job: TrainingJob) -> Iterator[Problem]:
        """The names of all replicas must be valid names of Services, and the job's name a valid label value."""
        if not job.key.name:
            return
        longest = _longest(job, names)
        fault = fault_of_label_name(longest) if longest else None
        if fault is not None:
            remedy = "write letters, digits and dashes, a letter first"
            if len(longest) > LONGEST_LABEL:
                remedy = f"shorten it, or spec.RuntimeId, by {len(longest) - LONGEST_LABEL}"
            yield Problem("metadata.name", f"gives a replica's service the name {longest}, which {fault}", remedy)
        elif len(job.key.name) > LONGEST_LABEL:
            yield Problem(
                "metadata.name",
                f"is {len(job.key.name)} characters long, more than the maximum of {LONGEST_LABEL} for a pod label",
                f"shorten it by {len(job.key.name) - LONGEST_LABEL}",
            )

    def tf_config_fits(job: TrainingJob) -> Iterator[Problem]:
        length = tf_config_length(job, habits(names))
        if length > LONGEST:
            yield Problem(
                f"spec.{Spec.LIST}",
                f"gives a TF_CONFIG of {length} bytes, more than the {LONGEST} that Linux allows",
                "use fewer replicas, or a shorter name",
            )

    return names_fit, tf_config_fits


def _longest(job: TrainingJob, names: Names) -> str:
    """The longest service name at the requested size: one of those with the highest index."""
    last = (Replica(group.type, group.wish - 1) for group in job.groups if group.wish)
    return max((names.service(job, replica) for replica in last), key=len, default="")
