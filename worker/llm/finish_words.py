"""Why a model stopped, in the words of chat completions and of messages, which gateways mix."""

from haltline.protocol.kinds import Finish

FINISH: dict[str, Finish] = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",  # the model is not done and wants to go on, which is what is made of a length
    "content_filter": "content_filter",
    "safety": "content_filter",
    "refusal": "content_filter",
    "prohibited_content": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
}


def finish_of(word: str) -> Finish:
    """By the word, lower case, up to the first colon (`content_filter: PROHIBITED_CONTENT`). Any other word is an end
    whose reason we do not know: `stop`; what came with it decides (R46)."""
    return FINISH.get(word.lower().partition(":")[0].strip(), "stop")


def weighed(finish: Finish | None, refusal: str) -> Finish | None:
    """What an end means beside a refusal: some servers send one and say `stop`."""
    return "content_filter" if refusal and finish == "stop" else finish
