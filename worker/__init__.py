"""Does: the LLM worker streams from the gateway, the tool worker runs tools. Neither decides."""
