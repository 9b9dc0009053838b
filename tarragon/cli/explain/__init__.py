"""Why a job waits, and for how long: the queue, quotas, and what the operator's scheduler sees."""
