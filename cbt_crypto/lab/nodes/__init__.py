"""The lab's nodes: virtual machines, or namespaces of this kernel."""
