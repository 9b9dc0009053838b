"""The port over HTTP: connections, kubeconfig, credentials, TLS, proxies, and errors as Kubernetes writes them."""
