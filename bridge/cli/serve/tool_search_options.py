"""Tool search options of ``bridge serve``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bridge.cli.options import Number, count_setting, group_setting, setting, texts_setting
from bridge.tools.task import MAX_SECONDS

if TYPE_CHECKING:
    from bridge.client.config.servers import ToolListing
    from bridge.server.lists.search import ServerToolSearch

MAX_LISTED_TOKENS = 10_000
"""Default of ``--max-listed-tokens``, as in `bridge.server.lists.search`, which is imported for the search alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeOptions:
    """Limits of the scripts of code mode; the defaults are those of `bridge.server.code.limits`."""

    code_seconds: float = setting(
        type=Number(0.001, MAX_SECONDS),
        metavar="SECONDS",
        default=10.0,
        help="With --tools code: maximum time for which a script computes, and for which it sleeps. Waiting for tools "
        "does not count.",
    )
    code_memory_bytes: int = count_setting(
        "BYTES", "With --tools code: maximum bytes of the values of a script.", default=64 * 1024 * 1024
    )
    code_calls: int = count_setting("CALLS", "With --tools code: maximum calls of tools by a script.", default=100)
    code_output_chars: int = count_setting(
        "CHARACTERS",
        "With --tools code: maximum length of what a script prints, and of its result; longer ones are cut.",
        default=50_000,
    )
    code_scripts: int = count_setting(
        "SCRIPTS",
        "With --tools code: maximum scripts that run at the same time, each in a process of its own.",
        default=8,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSearchOptions:
    """Options of the tools that clients list."""

    tools: ToolListing | None = setting(
        type=click.Choice(["all", "search", "auto", "code"]),
        help="Tools that clients list: all; or search_tools and call_tool, with which they find and call the others; "
        "auto for the search if all definitions are long; or, experimental, search_tools and run_code, which runs "
        "scripts that call the others. Default: the configuration's, or all.",
    )
    always_list: tuple[str, ...] = texts_setting(
        metavar="TOOL[,TOOL…]",
        help="With --tools search, auto or code: tools that are listed in any case; * and ? are wildcards. Repeatable.",
    )
    max_listed_tokens: int = count_setting(
        "TOKENS",
        "With --tools auto: maximum tokens of the definitions of all tools, at which all are listed; an estimate.",
        default=MAX_LISTED_TOKENS,
    )
    embeddings_model: str | None = setting(
        metavar="NAME",
        help="With --tools search, auto or code: model whose embeddings rank tools beside words, by OpenAI's API. Its "
        "key is OPENAI_API_KEY.",
    )
    embeddings_url: str | None = setting(
        metavar="URL", help="With --embeddings-model: base URL of another server with OpenAI's API."
    )
    code: CodeOptions = group_setting(CodeOptions, "Code mode")

    def search(self, configured: ToolListing | None) -> ServerToolSearch | None:
        """Return the tool search; None to list all tools.

        Args:
            configured: The listing of a configuration, which applies without the option; None for none.

        Raises:
            DefinitionError: There is no API key for the model.
            MissingExtraError: A package for the embeddings or for code mode is not installed.
        """
        mode = self.tools or configured
        if mode is None or mode == "all":
            return None
        from bridge.server.code.limits import CodeLimits  # noqa: PLC0415 - only with the search
        from bridge.server.lists.search import ServerToolSearch  # noqa: PLC0415 - as above

        embed = None
        if self.embeddings_model is not None:
            from bridge.models.openai.embeddings import openai_embeddings  # noqa: PLC0415 - as above

            embed = openai_embeddings(self.embeddings_model, base_url=self.embeddings_url)
        code = self.code
        return ServerToolSearch(
            mode=mode,
            always=self.always_list,
            max_listed_tokens=self.max_listed_tokens,
            embed=embed,
            code=CodeLimits(
                max_seconds=code.code_seconds,
                max_memory_bytes=code.code_memory_bytes,
                max_calls=code.code_calls,
                max_output_chars=code.code_output_chars,
                max_scripts=code.code_scripts,
            ),
        )
