"""`tarragon top`: a full-screen view of jobs, replicas and nodes, updated live.

Begin reading with `app`, the event loop. `watches` fills a `WatchedState` (`known`), `composing` turns it into a
`View`, `page` and `panels` draw it; `state` handles keys. The pure modules are `entries`, `grid`, `machines`, `page`,
`panels`, `sayings`, `state` and `view`.
"""
