"""The one model of a training job, whatever framework and API generation it was written for."""
