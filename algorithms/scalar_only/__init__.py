"""The scalar-only family: a round sends one seed and K·P gradient scalars.

One paper a file (DeComFL, HiSo, MeZO); what they share is in `base`, `local`, `payloads` and `replay`.

Doors: `base`.
"""
