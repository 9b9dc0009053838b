"""The shim, a process that supervises one container and outlives the kubelet, and the kubelet's client for it."""
