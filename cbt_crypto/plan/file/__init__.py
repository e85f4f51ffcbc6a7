"""The campaign file: its schema, its validation, and the sentences about what is wrong in it."""

from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.plan.file.reading import read_campaign, validate_campaign
from cbt_crypto.plan.file.schema import Campaign, json_schema

__all__ = ["Campaign", "ClusterSection", "json_schema", "read_campaign", "validate_campaign"]
