"""The one table from what an answer says to what kind of failure it is (requirement A4), as data.

Rules, in force for every endpoint alike:
1. Read from top to bottom; the first row that fits wins. The order is the requirement's: auth, payment, quota;
   throttling and overload; context overflow (also sent as 5xx or 200); what the model caused; other 4xx; other
   5xx and transport. What fits no row is never retried.
2. A row fits when one of its codes, finishes, statuses or words is found and nothing forbids it.
3. Codes beat statuses beat words, which is why a group's rows stand in that order; codes that providers put on
   everything (`api_error`, `invalid_request_error`) count only where a gateway may have lost the status.
4. A 4xx quotes the user's own texts. Its words do not speak of throttling or of servers, unless the message opens
   with them. Quoted values are no evidence at all, unless nothing else is (failure_evidence.py).

Words are regular expressions over lower-case text without backticks.
"""

import re

import msgspec

from haltline.protocol.kinds import Again, Kind, Subkind
from haltline.supervisor.failure_evidence import Evidence, canonical


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `note` says what it stands for and who sends it, for docs/."""

    kind: Kind
    subkind: Subkind | None = None
    again: Again = "unknown"
    codes: frozenset[str] = frozenset()
    families: re.Pattern[str] | None = None
    """Codes by pattern, searched in each canonical code."""
    finishes: frozenset[str] = frozenset()
    statuses: frozenset[int] = frozenset()
    words: re.Pattern[str] | None = None

    within: frozenset[int] | None = None
    """The row counts only with one of these statuses, or where none is known. Empty: only where none is known."""
    words_within: frozenset[int] | None = None
    """The same for its words alone."""
    opening: bool = False
    """With any other status, words still count when a message opens with them (rule 4)."""
    unless: re.Pattern[str] | None = None
    """Words that forbid the row's words."""
    unless_codes: re.Pattern[str] | None = None
    """Codes that forbid the row."""
    html: bool | None = None
    empty: bool | None = None
    note: str


def _codes(*names: str) -> frozenset[str]:
    return frozenset(canonical(name) for name in names)


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives))


_4XX = frozenset(range(400, 500))
_5XX = frozenset(range(500, 600))
_LOST: frozenset[int] = frozenset()
"""No status is known: a stream event, a proxy that lost it."""
_BUSY = _5XX | {408, 409, 425, 429, 498}
"""Statuses whose words may speak of throttling and of servers."""

_N = r"\(?\d[\d,._]{0,14}\)?"
_RATE = r"per[-_ ]?(?:minute|second|min\b|sec\b|hour)|\b[rt]p[ms]\b"
_INPUT = r"(?:prompt|input|inputs|request|requests?|messages?|conversation|context|history|sequence|query|payload)"
_WINDOW = r"(?:context|token|prompt|input|sequence|model)[- ](?:window|length|size|limit|budget|capacity)"
_SPAN = r"(?:[^.;\n]|\.\d){0,60}?"
"""A stretch of one sentence."""
_OVER = (
    r"(?:exceed\w*|overflow\w*|longer than|larger than|greater than|bigger than|more than|beyond|over|surpass\w*|"
    r"does not fit|cannot fit|fill\w*|too (?:long|large|big|many))"
)

_FILTER_CODES = _codes(
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
    "moderation_error",
    "guardrail_intervened",
    "guardrail_raised_exception",
    "guardrails_violation",
    "sensitive",
    "1301",
    "flagged_input",
)
_FILTER_FAMILIES = _words(r"^contentfilter|contentpolicy|policyviolation|sensitivecontent|^moderat")

RULES: tuple[Rule, ...] = (
    # 1 auth, payment, quota
    Rule(
        kind="content_filtered",
        codes=_FILTER_CODES,
        families=_FILTER_FAMILIES,
        words=_words(r"moderation|\bflagged\b"),
        within=frozenset({403}),
        note="moderation sent as 403, which would else read as auth",
    ),
    Rule(
        kind="quota_exhausted",
        codes=_codes(
            "billing_error",
            "billing_hard_limit_reached",
            "billing_not_active",
            "quota_exceeded",
            "quota_exhausted",
            "exceeded_current_quota_error",
            "usage_limit_reached",
            "usage_limit_exceeded",
            "usage_not_included",
            "payment_required",
            "payment_required_error",
            "credit_balance_too_low",
            "credits_exhausted",
            "out_of_credits",
            "credits_required",
            "budget_exceeded",
            "budget_exceeded_error",
            "arrearage",
            "free_usage_limit_error",
            "monthly_limit_reached",
            "1113",
            "1308",
            "1309",
            "1310",
        ),
        families=_words(
            r"^allocationquota|freetieronly|perday|insufficient\w*(?:quota|balance|credit|fund)|"
            r"(?:spend|spending|billing)limit|overdue|^billing"
        ),
        note="nothing left on the account, by code: OpenAI, Anthropic, Moonshot, DashScope, Zhipu, LiteLLM, Google",
    ),
    Rule(kind="quota_exhausted", statuses=frozenset({402}), note="payment required"),
    Rule(
        kind="quota_exhausted",
        words=_words(
            r"exceeded (?:your|its|the) (?:current|monthly|daily|weekly) (?:\w+ )?(?:quota|credits?|allowance)",
            r"check your plan and billing",
            r"insufficient (?:account )?(?:balance|credits?|funds|quota)",
            r"(?:credit|account) balance is (?:too low|insufficient|negative)",
            r"negative balance|not enough (?:balance|funds)",
            r"(?:out of|no|not enough|used all available|purchase more|add more|ran? out of|more) credits",
            r"billing (?:hard |soft )?limit|payment required|account is (?:not active|in arrears|overdue)",
            r"(?:monthly|weekly|daily|\d{1,3}[- ]hour|session) (?:\w+ ){0,3}(?:limit|quota|allowance)",
            r"(?:spend(?:ing)?|usage|budget|credit) limits? (?:has been |have been |was |is )?(?:reached|exceeded|hit)",
            r"(?:reached|exceeded|hit) (?:\w+ ){0,5}(?:spend(?:ing)?|usage|budget|credit) limits?",
            r"budget has been exceeded|exceeded ?budget|over budget|extra usage is required|regain access",
            r"free[- ]models[- ]per[- ]day|free tier .{0,40}exhausted",
            r"(?:trial|subscription) (?:has )?(?:ended|expired)",
            r"使用上限|余额不足|欠费|额度(?:不足|已)",
        ),
        words_within=_4XX - {404, 422} | _5XX,
        unless=_words(_RATE),
        unless_codes=_words(r"per(?:minute|second)|^ratelimit(?:exceeded|reached)"),
        note="nothing left on the account, in words",
    ),
    Rule(
        kind="quota_exhausted",
        words=_words(r"quota (?:has been |is |was )?(?:exceeded|exhausted|reached|used up)|exceeded .{0,40}\bquota\b"),
        words_within=_4XX - {404, 422} | _5XX,
        unless=_words(_RATE, r"rate[- ]limit|try again (?:in|later)|retry"),
        unless_codes=_words(r"per(?:minute|second)|ratelimit|resourceexhausted|throttl|toomanyrequests"),
        note="a quota without a rate",
    ),
    Rule(
        kind="auth",
        codes=_codes(
            "auth_error",
            "unauthorized",
            "unauthorized_error",
            "unauthenticated",
            "permission_error",
            "permission_denied",
            "permission_denied_error",
            "access_denied",
            "access_denied_exception",
            "access_denied_error",
            "forbidden",
            "forbidden_error",
            "request_forbidden",
            "unsupported_country_region_territory",
            "unrecognized_client_exception",
            "invalid_client_token_id",
            "expired_token_exception",
            "invalid_signature_exception",
            "incomplete_signature",
            "missing_authentication_token_exception",
            "account_deactivated",
            "organization_deactivated",
            "invalid_organization",
            "token_expired",
            "expired_token",
            "no_auth_context",
            "1004",
        ),
        families=_words(
            r"authentication|api_?key(?:invalid|expired|missing|error)|(?:invalid|incorrect|missing)apikey"
        ),
        note="key or permission, by code",
    ),
    Rule(kind="auth", statuses=frozenset({401, 403, 407}), note="key or permission, by status"),
    Rule(
        kind="auth",
        words=_words(
            r"(?:invalid|incorrect|expired|missing|wrong|no|bad|unknown|valid) (?:\w+ )?(?:x-)?"
            r"(?:api|subscription|access)[- _]?key",
            r"(?:api[- _]?key|credentials?|bearer token|access token|auth token)(?: \S+)? (?:is |are |was |has |have )?"
            r"(?:not valid|invalid|missing|expired|revoked|incorrect|not found|required|not provided|been revoked)",
            r"no auth credentials|authentication (?:fails|failed|required|error)|not authenticated|unauthori[sz]ed",
            r"missing authentication|proxy authentication required|access denied|permission denied",
            r"(?:country|region|territory|location)\b.{0,40}not supported",
        ),
        words_within=_5XX | {400, 404, 422},
        note="key or permission, in words (Google and xAI send 400)",
    ),
    # 2 throttling and overload
    Rule(
        kind="server",
        subkind="overloaded",
        codes=_codes(
            "slow_down",
            "server_busy",
            "capacity_exceeded",
            "flex_tier_capacity_exceeded",
            "model_not_ready_exception",
            "no_available_capacity",
        ),
        families=_words(r"overload"),
        statuses=frozenset({498, 529}),
        words=_words(
            r"\boverload(?:ed|ing)?\b|too busy",
            r"(?:server|service|system|engine|model) is (?:currently |very |too )*busy",
            r"(?:at|over|out of|exceeded|insufficient|no|limited) (?:\w+ )?capacity\b|capacity (?:constraints|limits)",
            r"(?:high|heavy|peak) (?:demand|load|traffic)|system (?:is )?under (?:heavy )?load|please slow down",
            r"服务器?繁忙|负载(?:过高|已饱和)|访问量过大",
        ),
        words_within=_BUSY,
        opening=True,
        unless_codes=_words(r"^servicetiercapacityexceeded"),
        note="overloaded, also where the status says 429",
    ),
    Rule(
        kind="rate_limited",
        codes=_codes(
            "too_many_requests",
            "too_many_requests_exception",
            "too_many_requests_error",
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
        families=_words(r"throttl|ratelimit|perminute|persecond|[rt]pm(?:limit)?exceed"),
        statuses=frozenset({429}),
        note="throttled, by code or 429",
    ),
    Rule(
        kind="rate_limited",
        words=_words(
            r"rate[- _]?limit|too many (?:requests|concurrent)|throttl|too many tokens, please wait",
            r"(?:requests|tokens|calls|queries) per (?:minute|second|hour|day)|call rate limit",
            r"concurren\w+ (?:\w+ ){0,3}(?:limit|exceeded)|no deployments available",
            r"\b(?:slow down|request limit (?:exceeded|reached))|请求(?:过于)?频繁|并发(?:数)?(?:过高|超)",
        ),
        words_within=_BUSY,
        opening=True,
        note="throttled, in words",
    ),
    # 3 context overflow
    Rule(
        kind="output_truncated",
        finishes=_codes(
            "length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded", "token_limit"
        ),
        within=_LOST,
        note="an end signal: cut by the output limit, or by the window while writing",
    ),
    Rule(
        kind="context_overflow",
        codes=_codes(
            "context_overflow",
            "context_overflow_error",
            "request_too_large",
            "request_too_large_error",
            "tokens_limit_reached",
            "max_context_length_exceeded",
            "model_max_prompt_tokens_exceeded",
            "model_context_window_exceeded",
            "input_token_limit",
            "1261",
        ),
        families=_words(
            r"context(?:length|window|size|limit)(?:is)?exceed|exceed(?:s|ed)?(?:the)?context|"
            r"(?:prompt|input|context|messages?)(?:is)?too(?:long|large)"
        ),
        note="the request does not fit, by code",
    ),
    Rule(
        kind="context_overflow",
        words=_words(
            r"(?:maximum|max) (?:allowed )?(?:context|model|prompt|input|sequence) (?:length|size|window)",
            rf"{_OVER} (?:[^\s.;]+ ){{0,6}}?(?:context|maximum) (?:window|length|size|limit)\b",
            rf"context (?:window|length|size|limit)\b (?:\S+ ){{0,5}}?(?:exceed|overflow|reached|is {_N})",
            r"context (?:the )?overflow|overflows? (?:the |its |their )?context",
            rf"{_INPUT}(?: token)?(?: length| size| context)?(?: is| are| was|\))* too (?:long|large)(?! entity)",
            r"(?:reduce|shorten|decrease) (?:the )?(?:length|size|number) of (?:the |your )?"
            r"(?:messages|prompt|input|conversation|tokens)",
            r"range of input length should be|exceeded model token limit|tokens to keep from the initial prompt",
            r"max_(?:completion_)?tokens must be (?:at least 1|greater than 0|positive), got -\d",
            r"n_keep\b.{0,40}n_ctx|max_seq_len|max_new_tokens must be",
            r"conversation (?:length|limit)|reached its conversation limit",
            r"上下文(?:长度|窗口|限制)|输入(?:长度)?(?:超过|超出|过长)|超出上下文",
            r"超过最大(?:输入)?长度|token ?数(?:量)?超",
        ),
        words_within=_4XX - {404, 405} | _5XX,
        unless=_words(
            r"cannot be greater than max_model_len|string too long|array too long|context (?:window|length) too small"
        ),
        note="the request does not fit, in words: one list for all endpoints (R69), also behind a 5xx (R70)",
    ),
    Rule(
        kind="context_overflow",
        words=_words(
            rf"{_INPUT}\b{_SPAN}(?:{_OVER}|must (?:have|be) (?:less|fewer)|at most|only supports|limit){_SPAN}"
            rf"(?:\btokens?\b|{_WINDOW})",
            rf"(?:prompt|input|context|conversation)(?: token)?(?: count| length| size)?\b{_SPAN}exceed\w*{_SPAN}{_N}",
            rf"tokens?\b{_SPAN}{_OVER}{_SPAN}(?:limit|max(?:imum)?\b|allowed|window|length)",
            rf"tokens?\b{_SPAN}(?:exceed\w*|only supports|supports? (?:only )?up to|must (?:have|be) (?:less|fewer)|"
            rf"(?:longer|larger|greater) than){_SPAN}{_N}",
            rf"must have less than {_N} tokens|too many (?:input |prompt |total )?tokens",
            r"request (?:size )?exceeds the maximum size",
            r"exceed\w* (?:the )?(?:model )?(?:token limit|maximum (?:number of )?(?:input )?tokens)",
        ),
        words_within=_4XX - {404, 405} | _5XX,
        unless=_words(
            r"string too long|array too long|characters|\bimages?\b.{0,60}(?:exceeds|too|size|mb\b)|\bpdf\b|\bmb\b",
            r"tool names?|\bname\b|temperature|top_p|budget_tokens|quota|expected a? ?(?:value|string|array)",
            r"must be between|max_(?:completion_|output_|new_)?tokens(?: value)?(?: is|:|=| must| cannot| should| \W)",
            r"valid range of|(?:output|completion) tokens|maximum tokens you requested|too small|timed? ?out",
            _RATE,
        ),
        note="more tokens than a limit, in any words that speak of the input (R67)",
    ),
    Rule(
        kind="context_overflow",
        statuses=frozenset({413}),
        html=False,
        note="request too large; a proxy's page with 413 speaks of bytes, not tokens",
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
            "invalid_tool_call",
            "invalid_generation",
            "output_parse_failed",
        ),
        words=_words(
            r"failed to (?:call a function|validate json|generate (?:valid )?json)|tool call validation failed",
            r"(?:error|failed|failure)(?: while| to)? pars(?:e|ing) (?:the )?(?:tool|function) call",
            r"(?:model|assistant) (?:generated|produced|output|emitted) (?:an? )?(?:invalid|malformed) "
            r"(?:tool|function|json)",
        ),
        note="the provider rejects what its own model wrote (Groq, Ollama)",
    ),
    Rule(
        kind="content_filtered", subkind="refusal", finishes=_codes("refusal"), note="an end signal: the model refused"
    ),
    Rule(
        kind="content_filtered",
        codes=_FILTER_CODES,
        families=_FILTER_FAMILIES,
        finishes=_FILTER_CODES,
        words=_words(
            r"content (?:filter|management|moderation|polic)|safety (?:system|filter|polic|reason|setting)",
            r"\bflagged\b|usage polic|(?:blocked|rejected|filtered) (?:by|due to|for|because of|as a result of) .{0,40}"
            r"(?:polic|safety|moderation|guardrail)",
            r"inappropriate content|content exists risk|不安全|敏感内容|敏感信息",
        ),
        note="a content filter",
    ),
    Rule(
        kind="malformed_response",
        subkind="empty",
        finishes=_codes("malformed_function_call", "unexpected_tool_call", "no_image", "finish_reason_unspecified"),
        within=_LOST,
        note="an end signal: the model's call was dropped by the provider (Google, R46)",
    ),
    # 5 other 4xx
    Rule(
        kind="server",
        codes=_codes("server_error", "internal_server_error", "internal_server_exception", "model_error_exception"),
        note="the server's own fault by code, whatever the status",
    ),
    Rule(
        kind="bad_request",
        codes=_codes("invalid_request_error", "bad_request_error", "not_found_error", "invalid_parameter_error"),
        within=frozenset({500}),
        note="a wrong request by code, behind a gateway that made it a 500",
    ),
    Rule(kind="server", statuses=frozenset({408, 424, 425}), note="the 4xx that another moment mends"),
    Rule(
        kind="context_overflow",
        statuses=frozenset({400}),
        empty=True,
        note="a 400 without a word: how some endpoints refuse a request that does not fit (Cerebras)",
    ),
    Rule(kind="bad_request", statuses=_4XX | frozenset(range(300, 400)), note="any other 4xx, and redirects"),
    # 6 other 5xx and transport
    Rule(kind="server", statuses=_5XX, note="any other 5xx"),
    Rule(
        kind="server",
        codes=_codes(
            "internal",
            "internal_error",
            "unavailable",
            "unavailable_error",
            "bad_gateway",
            "bad_gateway_error",
            "network_error",
            "upstream_error",
            "provider_error",
            "model_stream_error_exception",
            "api_connection_error",
        ),
        families=_words(r"^serviceunavailable|timeout|deadlineexceeded"),
        finishes=_codes("error", "network_error"),
        within=_LOST,
        words=_words(
            r"internal (?:server )?error|bad gateway|service (?:is )?(?:temporarily )?unavailable|gateway time-?out|"
            r"(?:server|provider|upstream|backend) (?:\w+ ){0,2}(?:error|failure|failed|disconnected|unavailable)|"
            r"upstream connect|temporarily unavailable|network_error"
        ),
        note="the server's own fault, where no status is known",
    ),
    Rule(
        kind="aborted",
        words=_words(r"\brequest (?:was |has been )?aborted\b|\baborted by\b|\baborterror\b|operation was aborted"),
        within=_LOST,
        note="our own abort",
    ),
    Rule(
        kind="stream_idle",
        subkind="silence",
        words=_words(
            r"idle time-?out|sse (?:read )?timed out|stream (?:idle|stalled|timed out)|no (?:data|chunks?) received"
        ),
        within=_LOST,
        note="somebody's words for a silent stream",
    ),
    Rule(
        kind="stream_truncated",
        words=_words(
            r"\beof (?:before|while|occurred)|unexpected (?:eof|end of (?:file|stream|json|input))",
            r"stream (?:ended|closed|was closed|disconnected|interrupted|error)|incomplete (?:chunked )?read",
            r"premature(?:ly)? (?:close|end)|without (?:a |an )?(?:finish|terminal|end|stop|completion)",
            r"peer closed connection|before (?:completion|message_stop|response\.completed|\[done\])",
        ),
        within=_LOST,
        note="somebody's words for a cut stream",
    ),
    Rule(
        kind="network",
        subkind="dns",
        words=_words(r"enotfound|eai_again|name resolution|getaddrinfo|name or service not known"),
        within=_LOST,
        note="a proxy that found no host",
    ),
    Rule(
        kind="network",
        subkind="connect",
        words=_words(r"econnrefused|connection refused"),
        within=_LOST,
        note="a proxy that was refused",
    ),
    Rule(
        kind="network",
        subkind="reset",
        words=_words(
            r"econnreset|connection (?:was )?(?:reset|error|lost|closed|aborted)|socket hang up|other side closed|"
            r"broken pipe|fetch failed|network (?:connection )?(?:error|lost)|server disconnected"
        ),
        within=_LOST,
        note="a proxy whose connection broke",
    ),
    Rule(
        kind="network",
        subkind="timeout",
        words=_words(r"etimedout|timed? ?-?out\b|deadline exceeded"),
        within=_LOST,
        note="a proxy that waited too long",
    ),
    Rule(
        kind="bad_request",
        codes=_codes("bad_request", "not_found", "model_not_found"),
        families=_words(r"^invalid|notfound|validation|unsupported|badrequest|unprocessable"),
        words=_words(
            r"\binvalid\b|not found|does not exist|unsupported|not supported|must be|validation error|field required|"
            r"not allowed|unknown (?:model|parameter|field)|required (?:field|parameter)|bad request"
        ),
        within=_LOST,
        note="a wrong request, where no status is known",
    ),
    Rule(
        kind="server",
        codes=_codes("api_error"),
        words=_words(r"upstream|please (?:try again|retry)|(?:try|retry) (?:again )?later|retry your request"),
        within=_LOST,
        note="the vaguest: `api_error`, or somebody's wish to be asked again",
    ),
)


def find(evidence: Evidence) -> Rule | None:
    """The first row that fits; None: nothing is known. Quoted values count only where nothing else fits."""
    text = evidence.text.lower()
    found = _find(evidence, text)
    if found is None and (full := evidence.full_text.lower()) != text:
        return _find(evidence, full)
    return found


def _find(evidence: Evidence, text: str) -> Rule | None:
    return next((rule for rule in RULES if _fits(rule, evidence, text)), None)


def _fits(rule: Rule, evidence: Evidence, text: str) -> bool:
    if rule.within is not None and evidence.statuses and rule.within.isdisjoint(evidence.statuses):
        return False
    if (rule.html is not None and rule.html is not evidence.html) or (
        rule.empty is not None and rule.empty is not evidence.empty
    ):
        return False
    if rule.unless_codes is not None and any(map(rule.unless_codes.search, evidence.codes)):
        return False
    return (
        not rule.codes.isdisjoint(evidence.codes)
        or not rule.finishes.isdisjoint(evidence.finishes)
        or (rule.families is not None and any(map(rule.families.search, evidence.codes)))
        or not rule.statuses.isdisjoint(evidence.statuses)
        or (rule.words is not None and _speaks(rule, rule.words, evidence.statuses, text))
    )


def _speaks(rule: Rule, words: re.Pattern[str], statuses: frozenset[int], text: str) -> bool:
    if rule.unless is not None and rule.unless.search(text):
        return False
    if not statuses or rule.words_within is None or not rule.words_within.isdisjoint(statuses):
        return words.search(text) is not None
    return rule.opening and any(words.match(line.strip()) for line in text.split("\n"))
