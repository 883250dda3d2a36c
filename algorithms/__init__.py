"""What is computed: the contract, directions and their replay, and one paper per file."""
