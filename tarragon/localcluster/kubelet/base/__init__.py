"""The kubelet's foundation: pod and container specs, the layout of its files, processes of the machine."""
