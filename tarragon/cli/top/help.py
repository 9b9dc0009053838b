"""What the keys of the page do."""

from __future__ import annotations

from collections.abc import Sequence

TEXT: Sequence[str] = (
    "Jobs are above, the replicas of the chosen one below them, then the nodes:",
    "what pods have asked of each, of what it has. Everything is live.",
    "",
    "  ↑ ↓ or k j             choose                   PgUp PgDn Home End or g G",
    "  Tab, ← →               jobs, replicas, nodes    Esc goes back to the jobs",
    "  Enter or l             logs of the chosen job, or of the chosen replica",
    "  e                      its events",
    "  d                      describe: everything about it",
    "  w                      why it waits, does not start, or failed",
    "  /                      only jobs with these words: name, state, reason",
    "  s, r                   sort by age, name, state, restarts, GPUs; reverse",
    "  n                      all namespaces, or the one again",
    "  p                      suspend it, or resume it (asks first)",
    "  x                      delete it (asks first)",
    "  Ctrl-L                 draw everything anew      Ctrl-Z  stop; `fg` comes back",
    "  q or Ctrl-C            quit",
    "",
    "QUEUE is the place in the queue, of the jobs that are shown; RST: restarts.",
    "PROGRESS is what the training itself says last: epochs, steps, losses,",
    "accuracies in the log of the replica that decides the job; else why it waits.",
    "CPU, memory and GPUs of nodes: requested/allocatable; used, where it is measured.",
)
