"""The tree in other systems' languages, predicting there exactly as it does here. Knows trees, no rows."""
