"""The scalar-only family: algorithms whose rounds send one seed and K·P gradient scalars.

One paper per file (DeComFL, HiSo, MeZO, FedKSeed, FedScalar, FeedSign, …). Their shared code is in `base`,
`local`, `payloads`, `replay` and `exact`.

Doors: `base`.
"""
