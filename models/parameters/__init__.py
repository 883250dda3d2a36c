"""The parameters of a torch module as one flat vector.

Doors: `autocast`, `compiled`, `coordinates`, `derivatives`, `factored`, `flat`, `gradients`, `losses`, `products`,
`recorded_losses`, `slopes`, `stacked`, `storage`, `trained_vector`.
"""
