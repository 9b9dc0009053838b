"""`tarragon debug-dump`: collects objects and logs of jobs (`collection`) and redacts secrets (`redaction`)."""
