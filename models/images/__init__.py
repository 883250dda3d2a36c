"""Problems that classify images and other samples, and their networks.

Doors: `attack_problem`, `classifier`, `networks`, `resnet`, `task`.
"""
