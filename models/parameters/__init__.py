"""The parameters of a torch module as one flat vector.

Doors: `compiled`, `flat`, `gradients`, `trained_vector`.
"""
