"""Problems that classify images and other samples, and their networks.

Doors: `attack_problem`, `classifier`, `mnist_task`, `networks`, `resnet`, `task`.
"""
