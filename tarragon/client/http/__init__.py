"""The client over HTTP: kubeconfig, credentials, TLS, proxies, requests and streams, and the decoding of errors."""
