"""The parameters of a torch module as one flat vector.

Doors: `compiled`, `coordinates`, `flat`, `gradients`, `trained_vector`.
"""
