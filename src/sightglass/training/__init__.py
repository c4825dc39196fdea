"""The training's side: events are announced here, answered if somebody asks, and acts are applied."""
