"""Overlay `luks`: dm-crypt under OSDs or drives, with its tuning flags."""
