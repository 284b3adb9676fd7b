"""From pairs and a model to a better model, with proof: the stages put together."""
