"""Disposable Ceph nodes on one machine: virtual machines, or namespaces at native speed."""
