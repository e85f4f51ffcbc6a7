"""What a campaign works on: a cluster that it deploys, one that exists, drives without Ceph."""
