"""The one door to Kubernetes: a port, and the HTTP implementation of it. Knows no job."""
