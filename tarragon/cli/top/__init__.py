"""`tarragon top`: a full-screen view of jobs, replicas and nodes, updated live.

Begin reading with `app`, the event loop. `watches` fills a `WatchedState`, `view_builder` turns it into a `View`,
`page` and `panels` draw it; `page_state` handles keys. The pure modules are `job_rows`, `metrics_line`, `node_rows`,
`page`, `page_state`, `panels`, `table` and `view`.
"""
