"""Problems that classify images or other samples, and their networks.

Doors: `attack_problem`, `augmentation`, `classifier`, `folder`, `mnist_task`, `networks`, `problem`, `resnet`,
`sample_problem`, `settings`, `task`.
"""
