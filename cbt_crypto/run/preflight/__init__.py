"""What is asked of the hosts before anything is touched."""
