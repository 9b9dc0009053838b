"""Which nodes replicas go to: fit, packing onto few nodes, spreading over topology domains."""
