"""Receives reports of progress from programs, by the contract of Kubeflow Trainer, and writes them into jobs' status.

Modules, lowest first: `token_reviews` (who reports), `writer` (few writes, always the newest), `receiver` (judges a
report), `authority` (the certificate), `server` (HTTPS), `service` (keeps it running). Every replica of the operator
serves, whether it leads or not. Begin with `receiver.py`.
"""
