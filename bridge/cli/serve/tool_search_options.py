"""Tool search options of ``bridge serve``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bridge.cli.options import count_setting, setting, texts_setting

if TYPE_CHECKING:
    from bridge.client.config.servers import ToolListing
    from bridge.server.lists.search import ServerToolSearch

MAX_LISTED_TOKENS = 10_000
"""Default of ``--max-listed-tokens``, as in `bridge.server.lists.search`, which is imported for the search alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSearchOptions:
    """Options of the tools that clients list."""

    tools: ToolListing | None = setting(
        type=click.Choice(["all", "search", "auto"]),
        help="Tools that clients list: all; or search_tools and call_tool, with which they find and call the others; "
        "auto for the search if all definitions are long. Default: the configuration's, or all.",
    )
    always_list: tuple[str, ...] = texts_setting(
        metavar="TOOL[,TOOL…]",
        help="With --tools search or auto: tools that are listed in any case; * and ? are wildcards. Repeatable.",
    )
    max_listed_tokens: int = count_setting(
        "TOKENS",
        "With --tools auto: maximum tokens of the definitions of all tools, at which all are listed; an estimate.",
        default=MAX_LISTED_TOKENS,
    )
    embeddings_model: str | None = setting(
        metavar="NAME",
        help="With --tools search or auto: model whose embeddings rank tools beside words, by OpenAI's API. Its key is "
        "OPENAI_API_KEY.",
    )
    embeddings_url: str | None = setting(
        metavar="URL", help="With --embeddings-model: base URL of another server with OpenAI's API."
    )

    def search(self, configured: ToolListing | None) -> ServerToolSearch | None:
        """Return the tool search; None to list all tools.

        Args:
            configured: The listing of a configuration, which applies without the option; None for none.

        Raises:
            DefinitionError: There is no API key for the model.
        """
        mode = self.tools or configured
        if mode is None or mode == "all":
            return None
        from bridge.server.lists.search import ServerToolSearch  # noqa: PLC0415 - only with the search

        embed = None
        if self.embeddings_model is not None:
            from bridge.models.openai.embeddings import openai_embeddings  # noqa: PLC0415 - as above

            embed = openai_embeddings(self.embeddings_model, base_url=self.embeddings_url)
        return ServerToolSearch(
            mode=mode, always=self.always_list, max_listed_tokens=self.max_listed_tokens, embed=embed
        )
