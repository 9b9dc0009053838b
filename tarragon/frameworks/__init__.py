"""The training frameworks, each a value in a folder of its own. Pure."""
