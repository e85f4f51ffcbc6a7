"""From a campaign's file to cells in order and the steps that measure them. Touches nothing."""
