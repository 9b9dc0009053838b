"""What becomes of the queue of a real cluster, and what would with other nodes, jobs or policies.

Begin reading with `queue_course`. It plays a snapshot of the operator forward, with labels, taints, quotas and all.
"""
