"""A kubelet that starts no processes: pods run and end as their annotations say, for scale tests."""
