"""Explains to a user why a job waits and when it will start, by running the operator's scheduler read-only.

Begin reading with `explanation`, then `queue_status`. `scheduler_view` builds the scheduler's snapshot,
`operator_config` reads the operator's published configuration, `quotas` the use of a namespace's quota. `what_if` asks
what would become of the queue otherwise, in a `changed_cluster`, and `what_if_output` shows it.
"""
