"""The LLM worker: one HTTP stream at a time, read as bytes, reported as messages."""
