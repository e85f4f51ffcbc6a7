"""An OSD that is taken out under a load, and comes back."""
