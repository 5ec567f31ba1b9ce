"""What may be kept of a log that people wrote: hashed ids, names of built-in tools, first words of known
commands.

Everything else becomes `other`. Pure; it must not know formats. The lists are allow-lists: what is not on
them may be private.
"""

import hashlib

from tao.traces.model import HUMAN_WAIT
from tao.traces.shell import SETUP, read_command

OTHER = "other"
MCP = "mcp"

HUMAN_TOOLS = frozenset({"AskUserQuestion", "ExitPlanMode", "request_user_input"})
BUILTIN_TOOLS = frozenset(
    """
    Agent Bash BashOutput Edit EnterPlanMode Glob Grep KillBash KillShell LS LSP ListMcpResourcesTool
    MultiEdit NotebookEdit NotebookRead Read ReadMcpResourceTool Skill SlashCommand Task TaskCreate TaskGet
    TaskList TaskOutput TaskStop TaskUpdate TodoRead TodoWrite ToolSearch WebFetch WebSearch Write apply_patch
    close_agent container.exec exec_command list_mcp_resources local_shell read_file send_input shell
    shell_command spawn_agent update_plan view_image wait wait_agent web_search write_stdin bash execute_bash
    str_replace_editor submit
    """.split()  # noqa: SIM905 - a list of words reads better as words
)
COMMAND_HEADS = frozenset(
    """
    ag apt apt-get awk bash basename bat black brew bun bundle cargo cat chmod clang cmake composer conda cp
    curl cut date deno df diff dirname docker docker-compose dotnet du echo env esbuild eslint fd file find
    flake8 gcc gem gh git go gofmt golangci-lint gradle grep gunzip gzip head helm history hostname id isort
    java javac jest jq kill kubectl less ln ls lsof make mamba md5sum mise mkdir mount mv mvn mypy ninja node
    npm npx nproc nvidia-smi nvm open openssl patch perl pgrep php pip pip3 pipx pkill pnpm poetry pre-commit
    printenv printf ps psql pwd pylint pyright pytest python python3 rails rake realpath redis-cli rg rm rmdir
    rsync ruby ruff rustc rustfmt scp sed seq sh sha256sum sleep sort sqlite3 ssh stat strings sudo svn swift
    tail tar tee terraform test time timeout top touch tox tr tree true tsc tsx type uname uniq unzip uv
    uvicorn uvx vi vim vite vitest wc wget which whoami xargs yarn yq zip zsh
    """.split()  # noqa: SIM905 - a list of words reads better as words
)


def hashed_id(kind: str, *parts: str) -> str:
    """A stable id that tells nothing: `kind`, a dash and 12 hex digits of a digest of the parts."""
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass"))
    return f"{kind}-{digest.hexdigest()[:12]}"


def tool_name(name: str) -> str:
    """The name of a built-in tool, `user_wait` for one that asks the user, `mcp` or `other` otherwise."""
    if name in HUMAN_TOOLS:
        return HUMAN_WAIT
    if name in BUILTIN_TOOLS:
        return name
    return MCP if name.startswith(("mcp__", "mcp.")) else OTHER


def known_head(program: str) -> str | None:
    """What may be kept of the name of a program: a known one, `other` if not, None for one that only prepares."""
    if program in COMMAND_HEADS:
        return program
    return OTHER if program and program not in SETUP else None


def command_head(command: str) -> str | None:
    """The first program of a shell command that does work, if it is a known one; `other` if not, None if
    none.
    """
    return known_head(read_command(command).head or "")


def sleep_seconds(command: str) -> float | None:
    """Seconds of the literal sleeps in a command, None without one."""
    return read_command(command).sleep_seconds
