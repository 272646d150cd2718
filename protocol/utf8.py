"""Text of the command line and the environment, whose bytes need not be UTF-8: Python keeps the others as lone
surrogates, which no message can carry. Pure."""


def is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def repaired(text: str) -> str:
    """The same with a replacement character for each run of bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
