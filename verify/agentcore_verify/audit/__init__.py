"""The command `audit`: what a trainer would learn from recorded rollouts."""
