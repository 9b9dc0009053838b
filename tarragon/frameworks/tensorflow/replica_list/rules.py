"""Validation rules of jobs with a list of replicas, whose object names differ from those of later generations."""

from __future__ import annotations

from collections.abc import Iterator

from tarragon.base.errors import Problem
from tarragon.frameworks.plugin import ObjectNames, Rule
from tarragon.frameworks.tensorflow.fields import SpecField
from tarragon.frameworks.tensorflow.replica_list.tf_config import tf_config_options
from tarragon.frameworks.tensorflow.tf_config import MAX_LENGTH, tf_config_length
from tarragon.job.model import Replica, TrainingJob
from tarragon.kube.name_validation import DNS_LABEL_MAX_LENGTH, dns_label_error


def rules(names: ObjectNames) -> tuple[Rule, ...]:
    """The `rules` of a dialect."""

    def names_fit(job: TrainingJob) -> Iterator[Problem]:
        """The names of all replicas must be valid names of Services, and the job's name a valid label value."""
        if not job.key.name:
            return
        longest = _longest(job, names)
        fault = dns_label_error(longest) if longest else None
        if fault is not None:
            remedy = "write letters, digits and dashes, a letter first"
            if len(longest) > DNS_LABEL_MAX_LENGTH:
                remedy = f"shorten it, or spec.RuntimeId, by {len(longest) - DNS_LABEL_MAX_LENGTH}"
            yield Problem("metadata.name", f"gives a replica's service the name {longest}, which {fault}", remedy)
        elif len(job.key.name) > DNS_LABEL_MAX_LENGTH:
            yield Problem(
                "metadata.name",
                f"is {len(job.key.name)} characters long, more than the maximum of "
                f"{DNS_LABEL_MAX_LENGTH} for a pod label",
                f"shorten it by {len(job.key.name) - DNS_LABEL_MAX_LENGTH}",
            )

    def tf_config_fits(job: TrainingJob) -> Iterator[Problem]:
        length = tf_config_length(job, tf_config_options(names))
        if length > MAX_LENGTH:
            yield Problem(
                f"spec.{SpecField.LIST}",
                f"gives a TF_CONFIG of {length} bytes, more than the {MAX_LENGTH} that Linux allows",
                "use fewer replicas, or a shorter name",
            )

    return names_fit, tf_config_fits


def _longest(job: TrainingJob, names: ObjectNames) -> str:
    """The longest service name at the requested size: one of those with the highest index."""
    last = (Replica(group.type, group.replicas - 1) for group in job.replica_specs if group.replicas)
    return max((names.service(job, replica) for replica in last), key=len, default="")
