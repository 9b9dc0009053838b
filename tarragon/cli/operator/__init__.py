"""The options of `tarragon operator`, read into its settings."""
