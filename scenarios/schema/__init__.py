"""The scenario: what a file may say, read strictly, every mistake one sentence."""
