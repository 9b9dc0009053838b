"""The framework-independent model of a training job, its status and its conditions."""
