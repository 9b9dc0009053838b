"""A node on another machine than the API server: the kubelet's own server, and its connection."""
