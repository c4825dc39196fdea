"""What both ends of a connection share: messages, transports, and the registry of live runs."""
