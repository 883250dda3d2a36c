"""What happens: scenario files, faults, runs, reports and the command line."""
