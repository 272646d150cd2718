"""The tool worker: runs tools, owns their process trees, reports exactly one outcome per call."""
