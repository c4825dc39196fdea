"""The page's server: every run, live and recorded, over HTTP and one socket.

Theory of operation
    `app` puts everything together; every request passes the `middleware`; `access` authenticates, also with personal
    links; `connections` limits strangers; `jupyter` is the entry in Jupyter. `runs` holds the table of runs: a
    `served_run` is opened on demand, and connected to; `details` and `open_files` read its files, `scalar_lines` thins
    its series. `api` has one module for each family of endpoints, with a table of `schema.Route`s from which the routes
    and the OpenAPI document are made. `live` is the socket: the `hub` admits each `page_socket`, and sockets share
    streams (`shared_stream`), whose records wait in a backlog (`views.encoding`).

    `page_file` writes the page with the answers that it needs into one HTML file.

    The command `ui` lets all threads share one `heap`.

    There is one event loop. Calls that may block run in the thread pools of `Runs`, for files and for live runs,
    so that a slow disk does not delay commands.
"""
