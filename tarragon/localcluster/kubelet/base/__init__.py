"""What everything else of the kubelet stands on: container specs, layout of files, process identities."""
