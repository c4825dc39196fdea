"""How questions reach a run and records leave it: messages, transports, the agent, the registry of live runs."""
