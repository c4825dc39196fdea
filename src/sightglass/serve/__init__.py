"""The page's server: every run, live and recorded, over HTTP and one socket.

Theory of operation
    `app` puts everything together. `access` decides who may come in. `runs` is the table of runs, `source` one of them:
    found, opened, connected to, and forgotten when nobody needs it; `details`, `opened`, `settings` and `brief` read
    what there is to know of its files. `api` answers requests, one file for each family of endpoints, each a table of
    `schema.Route`s, from which the routes and the OpenAPI document are made; `overview` thins series for it, `tables`
    makes tables of tensors. `live` is the socket: each `viewer` looks at `feeds` that it shares with the others, each a
    `feed` of records into a `backlog`.

    One asyncio loop; whatever may block runs in the thread pools of `runs`: one for files, one for asking runs, so that
    a slow disk keeps nobody from acting.
"""
