"""A Kubernetes of its own on one machine: store, API server, controllers, kubelet. Has never heard of a TFJob."""
