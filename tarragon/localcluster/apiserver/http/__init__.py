"""The parts of the API server's HTTP front: what was asked, in what form, and how the answer goes over the wire."""
