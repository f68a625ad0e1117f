"""Rules of texts that give orders to a model, ask for secrets, or contain code.

Texts are compared without disguise (`bridge.doctor.hidden.undisguised`), in English, and phrases are read in their
context (`bridge.doctor.contexts`). A pattern is a sign, not a proof: a server can phrase an attack in other words, and
harmless texts may match. The rules therefore name the matched words.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING

from bridge.doctor.contexts import is_harmless
from bridge.doctor.hidden import undisguised
from bridge.doctor.rule import Problem, rule
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.doctor.subject import Subject

_MAX_SHOWN_CHARS = 120
_WORDS = r"(?:[\w'\u2019-]+,? ){0,4}"
_FEW = r"(?:[\w'\u2019-]+ ){0,2}"
_SOMEBODY = r"(?:user|users|human|humans|person|operator|customer|anyone|anybody)\b"
_REVIEW = "review the text; if it comes from another's server, do not use the tool"

_OVERRIDE = re.compile(
    rf"\b(?:ignore|disregard|forget(?! to )|override|bypass|discard) {_WORDS}"
    rf"(?:previous|prior|above|earlier|preceding|system|your|all) {_FEW}"
    r"(?:instructions?|prompts?|rules|guidelines|directives|directions|restrictions|safety|constraints)\b"
    r"|\b(?:ignore|disregard|bypass|disable) (?:the |all |any )*(?:safety|security|authentication|authorization)\b"
    r"|\byou are (?:now|no longer) (?:an?|the|in|free|bound|restricted|dan)\b"
    r"|\b(?:new|updated|real|actual) (?:system )?(?:instructions?|prompt|directives?) ?:"
    r"|\b(?:enter|enable|activate|switch to) (?:developer|god|jailbreak|dan|unrestricted|sudo) mode\b"
    r"|\bpretend (?:to be|that you|you are)\b"
    r"|\bact as (?:if|though) you (?:are|were|have)\b"
    r"|\bforget (?:everything|all) (?:above|before|earlier|so far)\b"
    r"|\bdisregard (?:the |all |any |your ){0,3}(?:guidelines|instructions|rules)\b"
    r"|\b(?:do not|don't|never) (?:follow|obey) (?:the |your |any |all |other |previous |system |user |user's ){0,3}"
    r"(?:instructions|rules|guidelines)\b"
    r"|\b(?:developer|god|jailbreak|dan|unrestricted) mode (?:is now )?activated\b"
    r"|\bgrant me (?:admin|administrator|root|full)\b|\binject (?:a |the )?tool[ _]calls?\b"
)
_SECRECY = re.compile(
    rf"\b(?:do not|don't|dont|never|must not|should not|without|avoid) {_FEW}"
    r"(?:tell|telling|inform|informing|mention|mentioning|notify|notifying|alert|alerting|reveal|revealing|disclose"
    rf"|disclosing|show|showing|say|saying|explain|explaining|warn|warning|ask|asking|let) {_WORDS}{_SOMEBODY}"
    rf"|\b(?:hide|conceal|keep) {_WORDS}(?:from|secret from) (?:the )?{_SOMEBODY}"
    rf"|\b(?:do not|don't|never) (?:mention|reveal|disclose) (?:this|that|these|it|any of this)\b"
    rf"|\b(?:tell|inform) (?:the )?{_SOMEBODY} (?:only|nothing)\b"
)
_MARKUP = re.compile(
    r"<\s*/?\s*(?:important|system|secret|instructions?|hidden|critical|urgent|admin|assistant|override"
    r"|system[-_ ]?(?:prompt|message|reminder|instructions?))\b[^<>]{0,80}>"
    r"|[\[|]{1,3} ?(?:system|admin|hidden|internal|secret|private)[ _](?:override|instruction|directive|command)s?\b"
    r"|<\|[a-z_]{2,30}\|>|\[/?inst\]|<</?sys>>|<!--"
    r"|(?:^| )#{1,6} ?(?:system|instructions?)(?: (?:prompt|message))?:"
    r"|\bend of (?:the )?(?:tool )?(?:description|definition)\b"
)
_ORDER = re.compile(
    r"\b(?:always|must|should|have to|has to|need to|required to|mandatory to|essential to) "
    rf"{_FEW}(?:call|use|invoke|run|execute|consult|trigger|called|used|invoked|run) {_FEW}"
    r"(?:first|before|immediately|prior|initially)\b"
    r"|\byou (?:must|have to|are required to|need to) (?:always )?(?:call|use|invoke|run|execute) this\b"
    r"(?! (?:tool |function )?only (?:if|when|after)\b)"
    rf"|\bbefore {_FEW}(?:us|call|runn|invok|execut|access|employ)ing {_FEW}(?:any|other|another) {_FEW}"
    r"(?:tools?|functions?|actions?|commands?)\b"
    rf"|\bbefore (?:any|every|all) (?:other )?(?:tools?|tool calls?|functions?|actions?)\b"
    rf"|\b(?:do not|don't|never) (?:use|call|execute|invoke) {_FEW}(?:other|another) {_FEW}tools?\b"
    rf"|\binstead of (?:the |any |all )*other tools?\b"
    r"|\bonly (?:use )?this tool (?:may|must|can|should)\b|\bhighest priority\b"
    r"|\btools? (?:will|does|do) not work (?:unless|otherwise|if)\b|\botherwise (?:the|this) tool (?:will|does) not\b"
    r"|\ball commands must include\b"
)
_COVERT = re.compile(
    r"\b(?:secretly|covertly|silently|surreptitiously|discreetly|unnoticed) "
    r"(?:and |also |then )?(?:send|upload|forward|transmit|cop(?:y|ie)|collect|record|includ|attach|add"
    r"|exfiltrat|read|insert|execut|run|call|stor|log|do|perform|duplicat)(?:e|s|es|d|ed|ing)?\b"
    r"|\b(?:send|upload|forward|transmit|copy|duplicate|insert)(?:s|es)? [^.]{0,60}\b(?:secretly|covertly|silently)\b"
    r"|\bbehind the scenes,? (?:it )?(?:send|upload|forward|transmit|collect|record|cop(?:y|ie))(?:e|s|es|ed|ing)?\b"
    r"|\bwithout (?:the )?(?:user|users|user's|users') (?:knowledge|knowing|consent|noticing)\b"
    r"|\b(?:actually|really) (?:send|upload|forward|transmit|delet|execut|collect)(?:e|s|es|ed|ing)?\b"
    r"|\bfor (?:caching|optimi[sz]ation|performance|quality|analytics|backup|debugging|diagnostic|compliance)s?"
    r" (?:purposes?|reasons?),? [^.]{0,40}\b(?:send|upload|forward|transmit|post)(?:s|ed|ing)?\b"
    r"|\b(?:share|sell|send|transmit)(?:s|ed|ing)? [^.]{0,40}\bthird[- ]part(?:y|ies)\b"
    r"|\b(?:webhook\.site|requestbin|pipedream\.net|interact\.sh|oast\.\w+|burpcollaborator|ngrok\.(?:io|app))\b"
    r"|\b(?:also|additionally|at the same time|while doing so) "
    rf"{_FEW}(?:send|upload|forward|transmit|exfiltrat|leak|collect|harvest|captur)(?:e|s|es|d|ed|ing)?\b"
    r"|\b(?:duplicate|insert|introduce|add) [^.]{0,60}\b(?:vulnerabilit(?:y|ies)|backdoors?)\b"
    r"|\b(?:b?cc|forward|redirect|send) (?:all|every|each) (?:e-?)?(?:mails?|messages?|payments?) to\b"
)
_CONTEXT = re.compile(
    r"\b(?:send|pass|include|add|attach|forward|provide|append|copy|upload|transmit|post|put|insert|give|concatenate"
    rf"|summari[sz]e|reveal|print|repeat|output|list) {_WORDS}"
    r"(?:system prompt|system message|conversation history|chat history|entire conversation|whole conversation"
    r"|full conversation|chain of thought|previous messages|message history|all (?:available |your |the )?tools"
    r"|your instructions|model name)\b"
)
_CONTEXT_PARAMETER = re.compile(
    r"(?:conversation_?history|chat_?history|system_?prompt|chain_?of_?thought|side_?note|tools?_?list|model_?name)"
)
_SECRET_FILE = re.compile(
    r"(?<![\w.-])\.(?:ssh|aws|kube|gnupg|azure|netrc|npmrc|pypirc|pgpass|git-credentials|docker/config)"
    r"(?![\w-]|[.](?!(?:json|ya?ml)?(?:\W|$))|[/\\][\w.-]{1,60}\.pub\b)"  # no host name, no public key
    r"|(?<![\w-])id_(?:rsa|dsa|ecdsa|ed25519)\b(?!\.pub\b)|/etc/(?:passwd|shadow|sudoers|hosts)\b|/proc/(?:self|\d+)/environ\b"
    r"|(?:\.cursor/|claude_desktop_|\.claude/|\.vscode/)[\w/.-]{0,40}(?:mcp|config|settings)\.json"
    r"|\b(?:wallet\.dat|credentials\.json|service_account\.json|authorized_keys)\b"
    rf"|\b(?:read|open|cat|dump|load|include|pass|send|upload|fetch) {_WORDS}contents? of [^.]{{0,60}}"
    r"\.(?:env|pem|key|p12|pfx)\b"
    r"|\b(?:print|dump|read|send|collect|list|upload|show|include|pass|encode) (?:me |all |the |your |any )*"
    r"(?:environment variables|env vars|api keys|passwords|credentials|private keys|access tokens)\b"
    r"|\b(?:print|dump|read|send|upload|reveal|leak|copy) (?:the |your )?[a-z0-9]{2,30}_"
    r"(?:api_key|secret|secret_key|password)\b"
)
_PAYLOAD = re.compile(
    r"\brm -(?=[a-z]{0,20}[rf])[a-z]{1,20} [/~*$]"
    r"|\b(?:curl|wget) [^|]{0,200}\| ?(?:sudo )?(?:ba|z)?sh\b|\bbash -i\b|/dev/tcp/"
    r"|\bnc(?:at)? (?:-\w+ ){1,4}[\w./]|\bmkfs\.\w+ /dev|\bdd if=/dev/|:\(\) ?\{ ?:\|:& ?\}"
    r"|\bshutdown -[hr] (?:now|0)\b|\bkill(?:all)? -9 |\bfind [/~]\S* [^|]{0,60}-(?:delete|exec)\b"
    r"|\bpg_sleep\(|\bwaitfor delay\b|\b(?:wget|curl) (?:-\w+ ){0,9}https?://\S+ -o\b"
    r"|\bchmod [ugoa+]*(?:777|4755|\+s) /"
    r"|\bpowershell(?:\.exe)? -\w*enc"
    r"|\b(?:os\.system|os\.popen|subprocess\.\w+|child_process\.\w+|__import__|eval|exec)\("
    r"|['\"]; ?drop table\b|\bunion (?:all )?select\b|\bor ['\"]?1['\"]? ?= ?['\"]?1\b|\bxp_cmdshell\b"
    r"|\b(?:base64 -d|base64 --decode) ?\|"
    r"|\bsudo -[is]\b|\bwscript\.shell\b|\binto (?:out|dump)file ['\"]"
)
_ACTIVE = re.compile(
    r"<\s*/?\s*(?:script|iframe|object|embed|svg|link|style|meta|base)\b[^<>]{0,200}>|\bjavascript:|\bvbscript:"
    r"|<\s*img\b(?! src=[\"']?\.{0,2}/(?!/))[^<>]{0,200}>"  # a local file is loaded from nowhere
    r"|\bdata:(?:text/html|application/javascript)|!\[[^\]]{0,200}\]\(https?://|\bon(?:error|load|click) ?= ?['\"]"
)
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/]{40,}={0,2}(?![A-Za-z0-9+/=])")


@rule("error")
def instruction_override(subject: Subject) -> Iterator[Problem]:
    """A definition tells the model to ignore other instructions, or gives it another role.

    A definition describes a tool. A text such as "ignore all previous instructions" is an attack on the model (prompt
    injection), or the description of a tool about such attacks. The rules of texts know English phrases only: read
    definitions in other languages yourself. Hidden letters, markup, files, commands and Base64 are found in any
    language.
    """
    return _matches(subject, _OVERRIDE, "an instruction to the model")


@rule("error")
def instruction_secrecy(subject: Subject) -> Iterator[Problem]:
    """A definition tells the model to keep something from the user, such as "do not tell the user"."""
    return _matches(subject, _SECRECY, "an instruction to keep something from the user")


@rule("error")
def instruction_markup(subject: Subject) -> Iterator[Problem]:
    """A definition contains markup that pretends to be a system message, such as `<IMPORTANT>` or `[INST]`.

    Markers of chat templates, comments, and a pretended end of the description are reported too.
    """
    return _matches(subject, _MARKUP, "markup that addresses the model")


@rule("warning")
def instruction_order(subject: Subject) -> Iterator[Problem]:
    """A definition demands that its tool is called before or instead of others.

    In this way a server takes precedence over tools of other servers. A server whose tools depend on one another
    may say so: "needs the id that `find_user` returns".
    """
    return _matches(subject, _ORDER, "a demand for precedence")


@rule("warning")
def behaviour_covert(subject: Subject) -> Iterator[Problem]:
    """A definition names a hidden or additional effect, such as "also sends the text to" or "silently uploads"."""
    return _matches(subject, _COVERT, "a covert effect")


@rule("warning")
def context_requested(subject: Subject) -> Iterator[Problem]:
    """A definition asks the model for its conversation, system prompt or list of tools, in its text or as a parameter.

    The server thereby learns what other servers and the user have said. Parameters such as `sidenote` or
    `conversation_history` are a known way to get it.
    """
    yield from _matches(subject, _CONTEXT, "a request for the conversation")
    for definition, specification in subject.tools:
        properties = specification.parameters.get("properties")
        for name in properties if isinstance(properties, dict) else ():
            if isinstance(name, str) and _CONTEXT_PARAMETER.fullmatch(undisguised(name)):
                message = f"the parameter {clip(name, _MAX_SHOWN_CHARS)!r} asks for the conversation"
                where = f"inputSchema.properties.{name}"
                yield Problem(item=definition.item, message=message, remedy=_REVIEW, where=where)


@rule("warning")
def secret_file_named(subject: Subject) -> Iterator[Problem]:
    """A definition names a file that holds secrets, such as `~/.ssh/id_rsa`, or asks for the environment.

    Attacks make a model read such a file with another tool, and pass the content as an argument.
    """
    return _matches(subject, _SECRET_FILE, "a file or variable that holds secrets")


@rule("warning")
def payload_dangerous(subject: Subject) -> Iterator[Problem]:
    """A definition contains a command, a call or a query of known attacks, such as `curl … | sh` or `'; DROP TABLE`.

    A model may copy it into an argument. Tools that explain such commands are reported too.
    """
    return _matches(subject, _PAYLOAD, "a dangerous command")


@rule("warning")
def markup_active(subject: Subject) -> Iterator[Problem]:
    """A definition contains HTML that runs or loads something, or a Markdown image.

    A client that renders the text may run a script, or send data in the address of an image.
    """
    return _matches(subject, _ACTIVE, "active markup")


@rule("warning")
def text_encoded(subject: Subject) -> Iterator[Problem]:
    """A definition contains text in Base64, which a user cannot read and a model can."""
    for definition in subject.definitions:
        for where, text in definition.texts:
            for match in _BASE64.finditer(text):
                if (decoded := _decoded(match[0])) is not None:
                    message = f"Base64 of {clip(decoded, _MAX_SHOWN_CHARS)!r}"
                    yield Problem(item=definition.item, message=message, remedy=_REVIEW, where=where)


@rule("note")
def text_unread(subject: Subject) -> Iterator[Problem]:
    """A definition was not examined to its end, since it or its target is too long.

    At most 100,000 characters of one text are examined, and at most two million of all texts of a target, in the order
    of its definitions.
    """
    for definition in subject.definitions:
        if definition.is_cut:
            message = "its texts are too long to be examined to their end"
            yield Problem(item=definition.item, message=message, remedy="shorten the texts, or leave the tool out")


def _matches(subject: Subject, pattern: re.Pattern[str], noun: str) -> Iterator[Problem]:
    for definition in subject.definitions:
        for where, text in definition.plain_texts:
            match = next((each for each in pattern.finditer(text) if not is_harmless(text, *each.span())), None)
            if match is not None:
                message = f"{noun}: {clip(match[0].strip(), _MAX_SHOWN_CHARS)!r}"
                yield Problem(item=definition.item, message=message, remedy=_REVIEW, where=where)


def _decoded(text: str) -> str | None:
    """Text that is encoded in Base64; None if it is something else."""
    try:
        decoded = b64decode(text + "=" * (-len(text) % 4), validate=True).decode()
    except (Base64Error, ValueError):
        return None
    return decoded if decoded.isprintable() and " " in decoded else None
