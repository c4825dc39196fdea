"""The hub's own server: for many users and projects, with TLS, and with a configuration that is made here.

Theory of operation
    `HubFolder` keeps what a hub needs to start again with the same keys: its certificate, its settings, and a file for
    each user. From these it writes the server's configuration. `nats_server` runs the server, and has it read the
    configuration again when users come and go. The server alone decides who may do what: `folder.rights`.
"""
