"""The objects that a job should have, pod by pod: names, placement, logs, accelerators, pod groups."""
