"""In the place of a program that trains, where it is not about training: it says as much, and ends or serves."""

from __future__ import annotations

import json
import os
import signal

CONFIG = json.loads(os.environ.get("TF_CONFIG", "{}"))
TASK = CONFIG.get("task", {"type": "master", "index": 0})

if TASK["type"] == "ps":
    signal.pause()
print(f"{TASK['type']} {TASK['index']} has ended: loss 0.001", flush=True)
