"""From records to percents with intervals, and what is doubtful about them."""
