"""`layout: side_by_side`: every configuration on one cluster, with OSDs of its own."""
