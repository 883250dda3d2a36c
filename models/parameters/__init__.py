"""The parameters of a torch module as one flat vector.

Doors: `compiled`, `coordinates`, `derivatives`, `flat`, `gradients`, `losses`, `stacked`, `trained_vector`.
"""
