"""Hooks of the documentation's site."""

from __future__ import annotations

from tests.docs.site_hooks import commands_in, on_page_content

CONSOLE = """$ bridge list tools.py
add
  Add two numbers.
$ bridge serve tools.py \\
    --transport http
serving tools
"""


def test_the_commands_of_a_console_are_those_with_a_prompt_and_their_further_lines() -> None:
    assert commands_in(CONSOLE) == ["bridge list tools.py", "bridge serve tools.py \\", "    --transport http"]


def test_a_console_is_given_its_commands_and_another_block_stays() -> None:
    code = '<span class="gp">$ </span>echo <span>&quot;a&quot;</span>\n<span>a</span>'
    console = f'<div class="highlight"><pre><code>{code}</code></pre></div>'
    other = '<div class="highlight"><pre><code>a = 1</code></pre></div>'
    assert on_page_content(other + console) == other + console.replace(
        'class="highlight"', 'class="highlight" data-copy="echo &quot;a&quot;"'
    )
