"""Trains a function with Kubeflow's SDK, as a notebook does."""

from kubeflow.training import TrainingClient


def train(parameters):
    """Runs in every replica. It must import what it uses, because only its source is sent."""
    import json
    import os

    task = json.loads(os.environ["TF_CONFIG"])["task"]
    loss = 1.0
    for step in range(parameters["steps"]):
        loss *= 0.5
        print(f"step {step + 1} of {parameters['steps']}, loss {loss:.3f}", flush=True)
    print(f"done: {task['type']} {task['index']}, loss={loss:.3f}")


client = TrainingClient(job_kind="TFJob", namespace="default")  # of the cluster that KUBECONFIG names
client.create_job(
    name="from-python",
    train_func=train,
    parameters={"steps": 4},
    num_workers=2,
    base_image="tensorflow/tensorflow:2.21.0",
)
client.wait_for_job_conditions("from-python", timeout=120, polling_interval=1)
print("succeeded:", client.is_job_succeeded("from-python"))
logs, _ = client.get_job_logs("from-python")
print(logs["from-python-worker-0"])
