"""Supervises one container from a process of its own, which outlives the kubelet; and the kubelet's side of it."""
