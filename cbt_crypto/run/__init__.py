"""Runs a plan: checks the hosts, deploys, measures, proves, keeps, tears down."""
