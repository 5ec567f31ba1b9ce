"""Scripts: which rule answers, in which tool's shape, and errors that name the place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tao.emulator import ScriptError, load_script, parse_script
from tao.emulator.conversation import Conversation, Message, Text, Tool, ToolCall


def talk(*texts: str, tools: tuple[Tool, ...] = (), system: str = "be good") -> Conversation:
    roles = ("user", "assistant")
    messages = [Message(roles[n % 2], (Text(text),)) for n, text in enumerate(texts)]
    return Conversation((Message("system", (Text(system),)), *messages), tools)


def test_first_matching_rule_answers() -> None:
    script = parse_script(
        """
        [[rule]]
        system = "title"
        text = "A title"
        [[rule]]
        turn = 2
        last = "^err.r"
        text = "again"
        [[rule]]
        turn_min = 2
        anywhere = "first"
        text = "done"
        """,
        "s.toml",
    )
    assert script.answer(talk("x", system="make a title"), "c") == [Text("A title")]
    assert script.answer(talk("first", "a", "error"), "c") == [Text("again")]
    assert script.answer(talk("first", "a", "fine"), "c") == [Text("done")]
    assert script.answer(talk("other", "a", "fine"), "c") is None
    assert script.answer(talk("first"), "c") is None


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (Tool("bash", ("command",)), {"command": "ls"}),
        (Tool("Bash", ("command", "description")), {"command": "ls", "description": "Run a command"}),
        (Tool("exec_command", ("cmd", "workdir")), {"cmd": "ls"}),
        (Tool("shell", ("command",)), {"command": ["bash", "-lc", "ls"]}),
    ],
)
def test_bash_takes_the_shape_of_the_clients_shell_tool(tool: Tool, arguments: object) -> None:
    script = parse_script('[[rule]]\nbash = "ls"', "s.toml")
    (call,) = script.answer(talk("x", tools=(Tool("read", ()), tool)), "c") or []
    assert isinstance(call, ToolCall)
    assert (call.name, json.loads(call.arguments)) == (tool.name, arguments)


def test_bash_without_a_tool_is_a_fenced_block() -> None:
    script = parse_script('[[rule]]\ntext = "THOUGHT: look"\nbash = "ls"', "s.toml")
    assert script.answer(talk("x"), "c") == [Text("THOUGHT: look"), Text("\n```bash\nls\n```\n")]


def test_rules_whose_tools_are_not_offered_are_skipped() -> None:
    script = parse_script(
        json.dumps(
            {
                "rule": [
                    {"tool_calls": [{"name": ["Read", "read"], "arguments": {"path": "b", "a": 1}}]},
                    {"text": "no tool"},
                ]
            }
        ),
        "s.json",
    )
    assert script.answer(talk("x"), "c") == [Text("no tool")]
    assert script.answer(talk("x", tools=(Tool("read", ()),)), "c") == [
        ToolCall("c0", "read", '{"a":1,"path":"b"}')
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]]\nturn = 1", "rule 1 has no answer"),
        (
            '[[rule]]\ntext = "a"\n[[rule]]\nlast = "("\ntext = "b"',
            "rule 2: last is not a regular expression",
        ),
        ('[[rule]]\ntxt = "a"', "unknown field `txt`"),
        ('[[rule]]\nturn = "one"\ntext = "a"', "Expected `int"),
        ("rule = [", "s.toml"),
        ("x = 1", "unknown field `x`"),
    ],
)
def test_errors_name_the_place(text: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message.replace("(", r"\(")):
        parse_script(text, "s.toml")


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    with pytest.raises(ScriptError, match="cannot be read"):
        load_script(path)
    path.write_text('[[rule]]\ntext = "a"')
    assert len(load_script(path).rules) == 1
