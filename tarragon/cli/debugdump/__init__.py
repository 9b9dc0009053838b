"""`tarragon debug-dump`: collects objects and logs of jobs (`gathering`) and redacts secrets (`redaction`)."""
