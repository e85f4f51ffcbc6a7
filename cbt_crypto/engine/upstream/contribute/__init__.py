"""This project as a branch in a checkout of upstream CBT, in commits that can be reviewed."""
