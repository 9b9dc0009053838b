"""The cluster that a command is about: this machine's own, or one that a kubeconfig names; and its logs."""
