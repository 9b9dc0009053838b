"""The commands, one module each. They parse options and call other packages; each is imported only when it runs."""
