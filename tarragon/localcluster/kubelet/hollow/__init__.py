"""A kubelet that starts no processes: pods run and end by annotation, for tests of scale."""
