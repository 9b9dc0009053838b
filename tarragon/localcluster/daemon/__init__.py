"""The process that runs the cluster: certificates, kubeconfig, nodes, start and stop."""
