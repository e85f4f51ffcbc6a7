"""One module for each format that a tool prints: fio, collectl, perf, etcd, rados bench."""
