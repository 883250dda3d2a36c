"""Running a scenario: its folder, its processes, and its replay."""
