"""What a user may not list, and what an explanation therefore lacks."""

from __future__ import annotations

NODES, PODS, JOBS, SHARES = "nodes", "pods", "jobs", "shares"
FORBIDDEN_TEXT = {
    NODES: "nodes (their free resources)",
    PODS: "pods in other namespaces (the resources they use)",
    JOBS: "jobs in other namespaces (the jobs ahead)",
    SHARES: "weights and quotas of namespaces (the order of the queue)",
}
