"""MPIJob of kubeflow.org, v1alpha1 to v2beta1. Begin with framework.py; it may import kubeflow and what is below."""
