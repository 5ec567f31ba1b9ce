"""Scripted answers: rules that look at a conversation and say what the model answers.

A script is a TOML or JSON file with a list `rule`; the first rule that matches answers. Form:
docs/emulator.md. It must not know dialects: tool names and argument shapes are taken from the tools that
the client offers.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tao.emulator.conversation import Conversation, Part, Text, Tool, ToolCall, canonical_json

SHELL_TOOLS = (
    "bash",
    "Bash",
    "exec_command",
    "shell",
    "shell_command",
    "local_shell",
    "run_shell_command",
    "terminal",
)


class ScriptError(ValueError):
    """A script file that cannot be read or makes no sense; the text names the file and the place."""


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    name: str | list[str]
    arguments: dict[str, Any] = {}


class _Rule(msgspec.Struct, forbid_unknown_fields=True):
    last: str | None = None
    system: str | None = None
    anywhere: str | None = None
    turn: int | None = None
    turn_min: int | None = None
    text: str | None = None
    bash: str | None = None
    tool_calls: list[_Call] = []


class _File(msgspec.Struct, forbid_unknown_fields=True):
    rule: list[_Rule]


@dataclass(frozen=True, slots=True)
class Rule:
    """Conditions (all that are given must hold) and the answer."""

    last: re.Pattern[str] | None
    system: re.Pattern[str] | None
    anywhere: re.Pattern[str] | None
    turn: int | None
    turn_min: int | None
    text: str | None
    bash: str | None
    calls: tuple[tuple[tuple[str, ...], dict[str, Any]], ...]

    def matches(self, conversation: Conversation) -> bool:
        turn = conversation.turn()
        if self.turn is not None and turn != self.turn:
            return False
        if self.turn_min is not None and turn < self.turn_min:
            return False
        messages = conversation.messages
        if self.last is not None and not (messages and self.last.search(messages[-1].text())):
            return False
        if self.system is not None:
            texts = [message.text() for message in messages if message.role in ("system", "instructions")]
            if not any(self.system.search(text) for text in texts):
                return False
        return self.anywhere is None or any(self.anywhere.search(message.text()) for message in messages)

    def parts(self, conversation: Conversation, call_id: str) -> list[Part] | None:
        """The answer's parts; None where the client offers none of the tools that the rule calls."""
        parts: list[Part] = [Text(self.text)] if self.text else []
        for names, arguments in self.calls:
            tool = next((tool for tool in conversation.tools if tool.name in names), None)
            if tool is None:
                return None
            parts.append(ToolCall(f"{call_id}{len(parts)}", tool.name, canonical_json(arguments)))
        if self.bash is not None:
            parts.append(shell_part(self.bash, conversation.tools, f"{call_id}{len(parts)}"))
        return parts


def shell_part(command: str, tools: tuple[Tool, ...], call_id: str) -> Part:
    """The command as a call of the client's shell tool in its argument shape, or as a fenced block of text."""
    for name in SHELL_TOOLS:
        for tool in tools:
            if tool.name == name:
                return ToolCall(call_id, name, canonical_json(_shell_arguments(command, tool)))
    return Text(f"\n```bash\n{command}\n```\n")


def _shell_arguments(command: str, tool: Tool) -> dict[str, Any]:
    if tool.name in ("shell", "local_shell"):
        return {"command": ["bash", "-lc", command]}
    if "cmd" in tool.parameters and "command" not in tool.parameters:
        return {"cmd": command}
    arguments = {"command": command}
    if "description" in tool.parameters:
        arguments["description"] = "Run a command"
    return arguments


@dataclass(frozen=True, slots=True)
class Script:
    rules: tuple[Rule, ...]

    def answer(self, conversation: Conversation, call_id: str) -> list[Part] | None:
        """Parts of the first rule that matches and can be answered; None where there is none."""
        for rule in self.rules:
            if rule.matches(conversation):
                parts = rule.parts(conversation, call_id)
                if parts is not None:
                    return parts
        return None


def load_script(path: Path) -> Script:
    """Read a script file (`.toml` or `.json`). Raises ScriptError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError(f"script {path} cannot be read: {error}") from error
    return parse_script(text, str(path))


def parse_script(text: str, origin: str) -> Script:
    """Parse a script; TOML unless `origin` ends in `.json`. Raises ScriptError."""
    try:
        data = msgspec.json.decode(text) if origin.endswith(".json") else tomllib.loads(text)
        file = msgspec.convert(data, _File)
    except (tomllib.TOMLDecodeError, msgspec.MsgspecError) as error:
        raise ScriptError(f"script {origin}: {error}") from error
    return Script(
        tuple(_rule(rule, f"script {origin}: rule {n}") for n, rule in enumerate(file.rule, start=1))
    )


def _rule(rule: _Rule, where: str) -> Rule:
    if rule.text is None and rule.bash is None and not rule.tool_calls:
        raise ScriptError(f"{where} has no answer; give text, bash or tool_calls")
    patterns: dict[str, re.Pattern[str] | None] = {}
    for field in ("last", "system", "anywhere"):
        pattern = getattr(rule, field)
        try:
            patterns[field] = None if pattern is None else re.compile(pattern, re.DOTALL)
        except re.error as error:
            raise ScriptError(f"{where}: {field} is not a regular expression: {error}") from error
    calls = tuple(
        ((call.name,) if isinstance(call.name, str) else tuple(call.name), call.arguments)
        for call in rule.tool_calls
    )
    return Rule(
        patterns["last"],
        patterns["system"],
        patterns["anywhere"],
        rule.turn,
        rule.turn_min,
        rule.text,
        rule.bash,
        calls,
    )
