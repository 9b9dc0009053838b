"""TFJob: training with TensorFlow by parameter servers, mirrored workers or a single process."""
