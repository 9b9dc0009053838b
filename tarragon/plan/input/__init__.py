"""From a manifest to a job that can be run: decoding, validation, conversion between API versions."""
