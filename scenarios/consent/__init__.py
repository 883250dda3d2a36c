"""What the owner of a client consents to: the terms of a scenario, ten lines that tell them, and limits of her own.

Doors: `own_model`, `own_record`, `owner_limits`, `sentences`, `terms`, `who_sees`.
"""
