"""The root file system and kernel that the lab's virtual machines boot."""
