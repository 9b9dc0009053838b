"""What the bars of Keras show where several workers train one model.

Seen with tf-keras 2.21 under MultiWorkerMirroredStrategy: until an epoch is over, its bar shows the sum of every metric
over all workers (`accuracy: 3.03` of four). The last state of the bar, and `verbose=2`, show the metric itself.
"""

from __future__ import annotations

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import CHIEF, MASTER, PS
from tarragon.job.model import TrainingJob


def sums_metrics(job: TrainingJob) -> bool:
    """Whether the bars of the job may show sums: it has several workers, and no parameter servers."""
    sizes = {group.type: group.replicas for group in job.replica_specs}
    workers = sum(sizes.get(kind, 0) for kind in (CHIEF, MASTER, WORKER))
    return workers > 1 and not sizes.get(PS, 0)
