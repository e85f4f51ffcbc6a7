"""Programs of ours that write down counters of a host while something is measured."""
