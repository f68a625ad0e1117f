"""Code mode, experimental: models call tools from scripts, which run in sandboxes.

run_code ─> Script ─> Sandbox ─> process of pydantic-monty
              ╰─> ToolCalls ─> each call is dispatched as a request of the same caller
"""
