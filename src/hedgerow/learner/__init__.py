"""The coordinator's side: DP-TopDown over noisy answers."""
