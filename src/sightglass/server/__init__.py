"""The page's server: every run, live and recorded, over HTTP and one socket.

Theory of operation
    `app` puts everything together. `access` decides who may come in. `runs` holds the table of runs; `source` is one of
    them: found, opened, connected to, and forgotten when nobody needs it; `details`, `opened`, `settings` and
    `info` read what there is to know of its files, `overview` thins its series. `api` answers requests, one file for
    each family of endpoints, each a table of `schema.Route`s, from which the routes and the OpenAPI document are made.
    `live` is the socket: each `viewer` of the `hub` looks at `feeds` that it shares with the others, each a `feed` of
    records into a backlog, which notebooks have too (`see.backlog`).

    One asyncio loop; whatever may block runs in the thread pools of `runs`: one for files, one for asking runs, so that
    a slow disk keeps nobody from acting.
"""
