"""The parameters of a torch module as one flat vector."""
