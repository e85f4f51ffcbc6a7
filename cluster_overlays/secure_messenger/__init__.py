"""Overlay `secure_messenger`: Ceph's messenger v2 in secure mode."""
