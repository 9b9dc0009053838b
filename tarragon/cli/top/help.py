"""The help text of `top`."""

from __future__ import annotations

from collections.abc import Sequence

HELP_LINES: Sequence[str] = (
    "Jobs are at the top, below them the replicas of the selected job, then the",
    "nodes. Everything is updated live.",
    "",
    "  ↑ ↓ or k j             select                   PgUp PgDn Home End or g G",
    "  Tab, ← →               jobs, replicas, nodes    Esc returns to the jobs",
    "  Enter or l             logs of the selected job, or of the selected replica",
    "  e                      events",
    "  d                      describe",
    "  w                      why it waits, does not start, or failed",
    "  /                      filter by name, state and reason",
    "  s, r                   sort by age, name, state, restarts, GPUs; reverse",
    "  n                      toggle all namespaces",
    "  p                      suspend or resume (asks first)",
    "  x                      delete (asks first)",
    "  Ctrl-L                 redraw                   Ctrl-Z  stop; `fg` returns",
    "  q or Ctrl-C            quit",
    "",
    "QUEUE is the position in the queue, among the jobs shown; RST: restarts.",
    "PROGRESS OR REASON: why the job waits or failed; else the latest epochs, steps,",
    "losses and accuracies in the log of its chief, or of its first replica.",
    "PODS, GPUS, CPU and MEMORY of nodes: requested/allocatable; used, if measured.",
)
