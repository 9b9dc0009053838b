"""What a kube-apiserver does to objects that are written, kind by kind: pure, the time is an argument."""
