"""A process node of a cluster that others run, with the kubelet's HTTPS server for logs and exec."""
