"""The campaign file: its schema, its validation, and the sentences about what is wrong in it."""

from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.plan.file.load import load, load_data
from cbt_crypto.plan.file.schema import Campaign, json_schema

__all__ = ["Campaign", "ClusterSection", "json_schema", "load", "load_data"]
