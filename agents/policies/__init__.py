"""Policies that every algorithm shares: who takes part in a round, and who gets a snapshot."""
