"""Overlay `network`: the cluster's traffic over another network or a tunnel."""
