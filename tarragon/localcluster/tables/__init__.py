"""The rows and columns that `kubectl get` prints."""
