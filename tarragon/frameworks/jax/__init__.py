"""JAXJob as training-operator 1.9 has it: workers that find worker 0, the coordinator of `jax.distributed`."""
