"""What a Monitor does about a sick training, on request: skip a step, stop, profile, call a function."""
