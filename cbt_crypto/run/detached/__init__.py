"""A campaign that runs by itself: started apart from the terminal, watched, and stopped."""
