"""TFJob: TensorFlow trained by parameter servers, mirrored workers or one process."""
