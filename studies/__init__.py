"""Questions about many runs: what a scenario would cost, studies, instruments, checks of plug-ins, random scenarios.

Doors: `analysis`, `check`, `explain`, `stress`, `study`.
"""
