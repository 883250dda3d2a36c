"""Problems that classify images or other samples, and their networks.

Doors: `attack_problem`, `classifier`, `mnist_task`, `networks`, `resnet`, `sample_problem`, `settings`, `task`.
"""
