"""The baselines by the names that `--policy` takes, each with what it is."""

from __future__ import annotations

from collections.abc import Mapping

BASELINE_NAMES: Mapping[str, str] = {
    "kube-scheduler": "pod by pod in the order of submission, without gangs; pods are spread over the nodes",
    "kube-scheduler-mixed": "pod by pod; pods of several jobs come interleaved, so that half gangs may deadlock",
    "strict-fifo": "gangs in the order of submission; the first that does not fit blocks all others",
    "plain-backfill": "gangs in the order of submission; those that fit pass those that do not, without reservations",
    "easy": "EASY backfilling with the true run times: only the first waiting gang has a reservation",
    "dragon-as-coded": "the scheduler of NTHU-LSALAB/DRAGON 0.9 with its defects",
    "tiresias": "Tiresias (NSDI'19): two queues, by the GPU time received (16 hours); stops jobs",
    "srpt": "shortest remaining time first, which is known; stops jobs",
    "srsf": "least remaining GPU time first, which is known; stops jobs",
    "pollux-like": "greatest sum of speed-ups, which are known, as Pollux (OSDI'21) with a fixed batch size",
    "elastic-oracle": "speed-ups weighted by the work that is left; both are known",
}
