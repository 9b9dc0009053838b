import json
import os

config = json.loads(os.environ["TF_CONFIG"])
me = config["task"]
workers = config["cluster"]["worker"]
print(f"I am {me['type']} {me['index']} of {len(workers)}, at {workers[me['index']]}")
