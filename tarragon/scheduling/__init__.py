"""Who may run, where and how large: numbers in, decisions out. Has never heard of Kubernetes. Pure."""
