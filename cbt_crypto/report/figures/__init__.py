"""From records to percentages with intervals, and what is doubtful about them."""
