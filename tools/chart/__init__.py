"""What tools/make_chart.py writes: the templates of the Helm chart, and the schema and the table of its values."""
