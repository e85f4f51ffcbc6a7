"""What a machine is, and how to speak to it: sites, remote shells, clocks, processes."""
