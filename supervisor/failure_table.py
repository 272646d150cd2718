"""The one table from what a provider said to what kind of failure it is (requirement A4), as data.

Read from top to bottom, the first rule that fits wins. The order is the requirement's:
    1 auth, payment, quota   2 throttling and overload   3 context overflow
    4 what the model caused  5 other 4xx                 6 other 5xx and transport
Within a group: provider codes, then statuses, then words. A rule fits when one of its codes, finishes, statuses
or phrases does and nothing forbids it. Words of a 4xx answer do not speak of throttling or of servers unless
the message opens with them: such answers quote the user's own texts. What fits no rule is never retried.

Phrases are regular expressions over lower-case text without its quoted values and backticks.
"""

import re
from collections.abc import Iterable

import msgspec

from haltline.protocol.kinds import Again, Kind, Subkind
from haltline.supervisor.failure_evidence import Evidence, canonical


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `note` says who sends this, for docs/."""

    kind: Kind
    subkind: Subkind | None = None
    again: Again = "unknown"
    codes: frozenset[str] = frozenset()
    families: re.Pattern[str] | None = None
    """Codes by pattern, searched in each canonical code."""
    finishes: frozenset[str] = frozenset()
    statuses: frozenset[int] = frozenset()
    phrases: re.Pattern[str] | None = None
    only_with: frozenset[int] | None = None
    """Phrases count only with one of these statuses, or where the status is lost; None: with any."""
    opening: bool = False
    """With a status outside `only_with`, phrases still count when a message opens with them."""
    lost: bool = False
    """The rule's codes and phrases count only where no status is known."""
    unless: re.Pattern[str] | None = None
    """Words that forbid the rule."""
    unless_codes: re.Pattern[str] | None = None
    html: bool | None = None
    empty: bool | None = None
    note: str


def _codes(*names: str) -> frozenset[str]:
    return frozenset(canonical(name) for name in names)


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives))


_4XX = frozenset(range(400, 500))
_5XX = frozenset(range(500, 600))
_BUSY = _5XX | {408, 409, 425, 429, 498}
"""Statuses with which words may speak of throttling and of servers."""

_PER_MINUTE = r"per[ -]?(?:minute|second|min\b|sec\b)|\b[rt]p[ms]\b"
_N = r"\d[\d,._]*"

RULES: tuple[Rule, ...] = (
    # 1 auth, payment, quota
    Rule(
        kind="content_filtered",
        statuses=frozenset(),
        phrases=_words(r"flagged by moderation|moderation .{0,40}flagged|flagged (?:as|by|for)\b"),
        only_with=frozenset({400, 403}),
        note="moderation, which some gateways send as 403",
    ),
    Rule(
        kind="quota_exhausted",
        codes=_codes(
            "insufficient_quota",
            "billing_error",
            "billing_hard_limit_reached",
            "billing_not_active",
            "quota_exceeded",
            "quota_exhausted",
            "exceeded_current_quota_error",
            "usage_limit_reached",
            "usage_limit_exceeded",
            "usage_not_included",
            "insufficient_balance",
            "insufficient_credits",
            "insufficient_funds",
            "insufficient_user_quota",
            "payment_required",
            "credit_balance_too_low",
            "out_of_credits",
            "budget_exceeded",
            "arrearage",
            "1113",
            "1308",
            "1309",
            "1310",
        ),
        families=_words(
            r"^allocationquota|freetieronly|perday|insufficient(?:quota|balance|credit|fund)|spendinglimit"
        ),
        unless_codes=_words(r"^per(?:minute|second)"),
        note="the account has nothing left: codes of OpenAI, Anthropic, Moonshot, DashScope, Zhipu, LiteLLM, Google",
    ),
    Rule(kind="quota_exhausted", statuses=frozenset({402}), note="payment required"),
    Rule(
        kind="quota_exhausted",
        phrases=_words(
            r"exceeded (?:your|its|the) current quota",
            r"check your plan and billing",
            r"insufficient (?:account )?(?:balance|credits?|funds|quota)",
            r"credit balance is too low",
            r"(?:out of|no|not enough|used all available|purchase more|add more|run out of) credits",
            r"billing (?:hard )?limit",
            r"(?:monthly|weekly|daily|5[- ]hour|session) (?:\w+ ){0,3}(?:limit|quota|allowance)",
            r"(?:spend(?:ing)?|usage|budget|credit) limit (?:has been |was |is )?(?:reached|exceeded|hit)",
            r"(?:reached|exceeded|hit) (?:\w+ ){0,4}(?:spend(?:ing)?|usage|budget|credit) limit",
            r"budget has been exceeded|exceeded ?budget|over budget",
            r"free[- ]models[- ]per[- ]day|free tier .{0,40}exhausted",
            r"account is (?:in arrears|suspended due to)",
            r"使用上限|余额不足|欠费|额度",
        ),
        only_with=_4XX - {404, 422} | _5XX,
        unless=_words(_PER_MINUTE),
        unless_codes=_words(r"per(?:minute|second)|^ratelimit(?:exceeded|reached)"),
        note="the account has nothing left, in words",
    ),
    Rule(
        kind="auth",
        codes=_codes(
            "authentication_error",
            "auth_error",
            "invalid_api_key",
            "api_key_invalid",
            "api_key_expired",
            "incorrect_api_key",
            "missing_api_key",
            "invalid_authentication",
            "invalid_authentication_error",
            "unauthorized",
            "unauthenticated",
            "permission_error",
            "permission_denied",
            "permission_denied_error",
            "access_denied",
            "access_denied_exception",
            "forbidden",
            "request_forbidden",
            "unsupported_country_region_territory",
            "unrecognized_client_exception",
            "expired_token_exception",
            "invalid_signature_exception",
            "missing_authentication_token_exception",
            "account_deactivated",
            "organization_deactivated",
            "invalid_organization",
            "token_expired",
            "expired_token",
            "1000",
            "1001",
            "1002",
            "1003",
            "1004",
        ),
        families=_words(r"^authentication|invalidapikey|apikey(?:invalid|expired|missing)"),
        note="key or permission, by code",
    ),
    Rule(kind="auth", statuses=frozenset({401, 403, 407}), note="key or permission, by status"),
    Rule(
        kind="auth",
        phrases=_words(
            r"(?:invalid|incorrect|expired|missing|wrong|no|bad|unknown) (?:\w+ )?(?:x-)?(?:api[- _]?key|subscription key)",
            r"(?:api[- _]?key|credentials?|bearer token|access token)(?: \S+)? (?:is |are |was |has |have )?"
            r"(?:not valid|invalid|missing|expired|revoked|incorrect|not found|required|been revoked)",
            r"no auth credentials|authentication (?:fails|failed|required|error)|not authenticated|unauthori[sz]ed",
            r"missing authentication|proxy authentication required|access denied|permission denied",
            r"(?:country|region|territory|location)\b.{0,40} not supported",
        ),
        only_with=frozenset({400, 404, 500}),
        note="key or permission, in words (Google and xAI send 400)",
    ),
    # 2 throttling and overload
    Rule(
        kind="server",
        subkind="overloaded",
        codes=_codes(
            "overloaded",
            "overloaded_error",
            "engine_overloaded",
            "engine_overloaded_error",
            "model_overloaded",
            "server_overloaded",
            "server_is_overloaded",
            "slow_down",
            "server_busy",
            "capacity_exceeded",
            "flex_tier_capacity_exceeded",
            "model_not_ready_exception",
            "system_cpu_overloaded",
            "system_memory_overloaded",
            "system_disk_overloaded",
        ),
        statuses=frozenset({529, 498}),
        phrases=_words(
            r"\boverload(?:ed|ing)?\b|too busy|(?:server|service|system|engine|model) is (?:currently |very |too )*busy",
            r"(?:at|over|out of|exceeded|insufficient|no|limited) (?:\w+ )?capacity\b",
            r"(?:high|heavy|peak) (?:demand|load|traffic)",
        ),
        only_with=_BUSY,
        opening=True,
        unless_codes=_words(r"^servicetiercapacityexceeded"),
        note="overloaded, also where the status says 429",
    ),
    Rule(
        kind="rate_limited",
        codes=_codes(
            "rate_limit",
            "rate_limited",
            "rate_limit_error",
            "rate_limit_exceeded",
            "rate_limit_reached",
            "rate_limit_reached_error",
            "too_many_requests",
            "too_many_requests_exception",
            "too_many_requests_error",
            "throttled",
            "resource_exhausted",
            "limit_requests",
            "limit_burst_rate",
            "request_limit_exceeded",
            "requests_limit_exceeded",
            "tokens_limit_exceeded",
            "concurrency_limit_exceeded",
            "service_tier_capacity_exceeded",
            "service_quota_exceeded_exception",
            "1302",
            "1303",
            "1305",
            "3505",
        ),
        families=_words(r"^throttl|^ratelimit|ratelimiterror$|perminute|persecond|^requestthrottl"),
        statuses=frozenset({429}),
        note="throttled, by code or 429",
    ),
    Rule(
        kind="rate_limited",
        phrases=_words(
            r"rate[- _]?limit|too many (?:requests|concurrent)|throttl|too many tokens, please wait",
            r"(?:requests|tokens|calls|queries) per (?:minute|second|hour|day)|call rate limit",
            r"concurren\w+ (?:\w+ ){0,3}(?:limit|exceeded)|no deployments available",
            r"\b(?:slow down|request limit (?:exceeded|reached))",
        ),
        only_with=_BUSY,
        opening=True,
        note="throttled, in words",
    ),
    # 3 context overflow
    Rule(
        kind="context_overflow",
        codes=_codes(
            "context_length_exceeded",
            "context_length_exceeded_error",
            "context_window_exceeded",
            "context_window_exceeded_error",
            "context_overflow",
            "exceed_context_size_error",
            "request_too_large",
            "prompt_too_long",
            "input_too_long",
            "tokens_limit_reached",
            "max_context_length_exceeded",
            "model_max_prompt_tokens_exceeded",
            "1261",
        ),
        families=_words(
            r"context(?:length|window|size|limit)(?:is)?exceed|exceed(?:s|ed)?(?:the)?context|(?:prompt|input)toolong"
        ),
        note="the request does not fit, by code",
    ),
    Rule(
        kind="context_overflow",
        phrases=_words(
            r"maximum (?:context|model|prompt|input|sequence) length",
            r"(?:exceed\w*|longer than|larger than|greater than|beyond|over|overflow\w*|too (?:large|long|big) for|bigger than|"
            r"does not fit|fit (?:in|into|within)|fill\w*) (?:\w+(?:'s)? ){0,6}?(?:context|token) (?:window|length|size|limit|budget)",
            r"context (?:window|length|size|limit) (?:\S+ ){0,4}?(?:exceed|overflow|reached|too (?:small|short))",
            r"(?:context|the) (?:the )?overflows",
            r"(?:prompt|input|request|conversation|messages?|context)(?: is| are| was)? too (?:long|large)(?: for|:|\b.{0,80}token|$|\.)",
            r"(?:prompt|input|conversation|context)(?: is| are)? too (?:long|large)",
            r"(?:input|prompt|request) (?:token count|length|tokens?)\b.{0,40}(?:exceed|longer|larger|greater|supports? (?:only )?up to)",
            r"input (?:token )?(?:count|length)(?: is)? (?:\(?"
            + _N
            + r"\)?(?: tokens\)?)?) .{0,60}(?:only supports|exceed|maximum)",
            r"(?:reduce|shorten|decrease) (?:the )?(?:length|size|number) of (?:the |your )?(?:messages|prompt|input|conversation|tokens)",
            r"exceed\w* (?:the )?(?:model )?(?:token limit|max(?:imum)?(?: allowed)? (?:input|prompt|context)? ?(?:length|size|tokens))",
            r"exceeded model token limit|prompt exceeds max(?:imum)? (?:length|tokens)",
            r"range of input length should be",
            r"must have less than " + _N + r" tokens|too many (?:input |prompt |total )?tokens(?:: size| in| for|\W*$)",
            r"tokens to keep from the initial prompt|shorter input",
            r"max_(?:completion_)?tokens must be (?:at least 1|greater than 0|positive), got -\d",
            r"(?:requested|total|input|prompt) tokens? (?:\(?"
            + _N
            + r"\)? )?exceeds?\b.{0,60}(?:context|window|limit|maximum)",
        ),
        only_with=_4XX - {404, 405} | _5XX,
        unless=_words(
            r"string too long|characters|image|\bfiles?\b|\bpdf\b|\bmb\b|bytes|array too|tool name|quota",
            _PER_MINUTE,
            r"max_?tokens (?:is too large|value)|maximum (?:allowed )?number of output tokens|completion tokens, whereas",
        ),
        note="the request does not fit, in words: one table for all endpoints (R69), also behind a 5xx (R70)",
    ),
    Rule(
        kind="context_overflow",
        statuses=frozenset({413}),
        html=False,
        note="request too large; a page of a proxy with 413 is about bytes, not tokens",
    ),
    # 4 what the model caused
    Rule(
        kind="bad_request",
        subkind="invalid_generation",
        codes=_codes(
            "tool_use_failed",
            "failed_generation",
            "json_validate_failed",
            "tool_call_validation_failed",
            "malformed_function_call",
            "unexpected_tool_call",
            "invalid_tool_call",
            "invalid_generation",
            "output_parse_failed",
        ),
        phrases=_words(
            r"failed to (?:call a function|parse tool call|validate json|generate (?:valid )?json)",
            r"tool call validation failed|(?:error|failure) (?:while )?parsing (?:the )?tool call",
            r"model (?:generated|produced|output|returned) (?:an? )?(?:invalid|malformed)",
        ),
        note="the provider rejects what its own model wrote",
    ),
    Rule(
        kind="content_filtered",
        subkind="refusal",
        finishes=_codes("refusal"),
        note="the model refused",
    ),
    Rule(
        kind="content_filtered",
        codes=_codes(
            "content_filter",
            "content_filtered",
            "content_filter_error",
            "content_policy_violation",
            "content_policy_violation_error",
            "responsible_ai_policy_violation",
            "prohibited_content",
            "safety",
            "blocklist",
            "recitation",
            "spii",
            "image_safety",
            "data_inspection_failed",
            "moderation",
            "moderation_blocked",
            "guardrail_intervened",
            "guardrail_raised_exception",
            "sensitive",
            "1301",
            "flagged_input",
        ),
        families=_words(r"^contentfilter|contentpolicy|policyviolation"),
        phrases=_words(
            r"content (?:filter|management|moderation|polic)|safety (?:system|filter|polic|reason)",
            r"\bflagged\b|usage polic|(?:blocked|rejected|filtered) (?:by|due to|for|as a result of) .{0,40}(?:polic|safety|moderation|guardrail)",
            r"inappropriate content|不安全|敏感内容",
        ),
        note="filtered",
    ),
    Rule(
        kind="output_truncated",
        finishes=_codes(
            "length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded", "token_limit"
        ),
        note="cut by the output limit",
    ),
    # 5 other 4xx
    Rule(
        kind="server",
        codes=_codes("server_error", "internal_server_error", "internal_server_exception", "model_error_exception"),
        note="the server's own fault by code, whatever the status",
    ),
    Rule(kind="server", statuses=frozenset({408, 425, 424}), note="4xx that only another moment mends"),
    Rule(
        kind="context_overflow",
        statuses=frozenset({400}),
        empty=True,
        note="a 400 without a word: some endpoints refuse a request that does not fit this way",
    ),
    Rule(kind="bad_request", statuses=_4XX | frozenset(range(300, 400)), note="any other 4xx, and redirects"),
    # 6 other 5xx and transport
    Rule(kind="server", statuses=_5XX, note="any other 5xx"),
    Rule(
        kind="server",
        codes=_codes(
            "api_error",
            "internal",
            "internal_error",
            "unavailable",
            "unavailable_error",
            "service_unavailable",
            "service_unavailable_error",
            "service_unavailable_exception",
            "timeout_error",
            "gateway_timeout",
            "deadline_exceeded",
            "bad_gateway",
            "network_error",
            "upstream_error",
            "provider_error",
            "model_timeout_exception",
            "model_stream_error_exception",
            "api_connection_error",
        ),
        lost=True,
        note="the server's own fault by code, in a stream or without a status",
    ),
    Rule(
        kind="aborted",
        phrases=_words(r"\brequest (?:was )?abort(?:ed)?\b|\baborted by\b|\baborterror\b"),
        lost=True,
        note="our own abort",
    ),
    Rule(
        kind="stream_idle",
        subkind="silence",
        phrases=_words(r"idle time-?out|sse read timed out|stream (?:idle|stalled|timed out)"),
        lost=True,
        note="a gateway's words for a silent stream",
    ),
    Rule(
        kind="stream_truncated",
        phrases=_words(
            r"eof before|unexpected (?:eof|end of (?:file|stream|json|input))|stream (?:ended|closed|disconnected)",
            r"incomplete (?:chunked read|read|message)|premature (?:close|end)|without (?:a )?(?:finish|terminal|end)",
            r"peer closed connection",
        ),
        lost=True,
        note="a gateway's words for a cut stream",
    ),
    Rule(
        kind="bad_request",
        codes=_codes("invalid_request_error", "bad_request", "bad_request_error", "not_found", "not_found_error"),
        families=_words(r"^invalid|notfound|validation|unsupported|^badrequest"),
        phrases=_words(
            r"\binvalid\b|not found|does not exist|unsupported|not supported|must be|validation error|field required|"
            r"not allowed|unknown (?:model|parameter|field)|required (?:field|parameter)|bad request",
        ),
        lost=True,
        note="a wrong request, where the status was lost",
    ),
    Rule(
        kind="server",
        phrases=_words(
            r"(?:internal|unknown|upstream|gateway|provider|backend|server) (?:\w+ )?(?:error|failure|timed? ?-?out|timeout)",
            r"bad gateway|service (?:is )?(?:temporarily )?unavailable|temporarily unavailable|(?:server|provider) (?:had an error|disconnected)",
            r"upstream|network_error|please (?:try again|retry)|try again later|retry your request|connection (?:reset|refused|error)",
        ),
        lost=True,
        note="the server's own fault, in words, where the status was lost",
    ),
)


def find(evidence: Evidence) -> Rule | None:
    """The first rule that fits; None: nothing known."""
    text = evidence.text.lower()
    found = _find(evidence, text)
    if found is None:
        full = evidence.full_text.lower()
        return _find(evidence, full) if full != text else None
    return found


def _find(evidence: Evidence, text: str) -> Rule | None:
    return next((rule for rule in RULES if _fits(rule, evidence, text)), None)


def _fits(rule: Rule, evidence: Evidence, text: str) -> bool:
    if rule.lost and evidence.statuses:
        return False
    if rule.html is not None and rule.html is not evidence.html:
        return False
    if rule.empty is not None and rule.empty is not evidence.empty:
        return False
    if rule.unless_codes is not None and any(rule.unless_codes.search(code) for code in evidence.codes):
        return False
    if not rule.codes.isdisjoint(evidence.codes) or not rule.finishes.isdisjoint(evidence.finishes):
        return True
    if rule.families is not None and any(rule.families.search(code) for code in evidence.codes):
        return True
    if not rule.statuses.isdisjoint(evidence.statuses):
        return True
    return rule.phrases is not None and _speaks(rule, evidence.statuses, text)


def _speaks(rule: Rule, statuses: frozenset[int], text: str) -> bool:
    assert rule.phrases is not None
    if rule.unless is not None and rule.unless.search(text):
        return False
    if not statuses or rule.only_with is None or not rule.only_with.isdisjoint(statuses):
        return rule.phrases.search(text) is not None
    return rule.opening and any(rule.phrases.match(line.strip()) for line in text.split("\n"))


def explain() -> Iterable[tuple[str, Kind, Subkind | None]]:
    """Rows for docs/: who sends what, and the kind that it becomes."""
    return ((rule.note, rule.kind, rule.subkind) for rule in RULES)
