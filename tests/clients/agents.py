"""How each coding agent is started, unmodified and headless, against an endpoint: its command line, settings and home.

Each gets a home folder and an environment of its own; nothing of the caller's goes in but PATH. What is not on loopback is
sent to a proxy that does not exist, so that an agent cannot reach anything else. The programs come from `make clients`.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from setup_clients import PROGRAMS
from tests.clients import mini_swe_agent

MODEL = "tiny"
KEY = "not-needed"
NOWHERE = "http://127.0.0.1:9"  # the discard port: refused at once


@dataclass(frozen=True, slots=True)
class Job:
    """What an agent is to do. `url`: where the gateway is, without /v1.

    `answer_regex`: what a real engine's random model is to answer with, where the agent can pass that on.
    """

    url: str
    task: str
    home: Path
    turns_max: int = 8
    answer_regex: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """A command, the whole environment of its process, and files of its home (path below it: text)."""

    command: list[str]
    environment: dict[str, str]
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Agent:
    """A program. `shell_tool`: how its tool for shell commands is named."""

    name: str
    shell_tool: str
    launch: Callable[[Job], Launch]


def environment(home: Path, **more: str) -> dict[str, str]:
    """A clean environment: only PATH is the caller's."""
    folders = {"XDG_CONFIG_HOME": ".config", "XDG_DATA_HOME": ".data", "XDG_CACHE_HOME": ".cache"}
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), NOWHERE)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        **{name: str(home / folder) for name, folder in folders.items()},
        "XDG_STATE_HOME": str(home / ".state"),
        "TMPDIR": str(home),
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        **proxies,
        **more,
    }


def claude_code(job: Job) -> Launch:
    """`claude -p`: Anthropic messages."""
    command = [
        *(str(PROGRAMS["claude"]), "-p", job.task, "--max-turns", str(job.turns_max)),
        *("--allowedTools", "Bash", "--output-format", "json"),
    ]
    switches = (
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_AUTOUPDATER",
        "DISABLE_TELEMETRY",
        "DISABLE_ERROR_REPORTING",
    )
    return Launch(
        command,
        environment(
            job.home,
            ANTHROPIC_BASE_URL=job.url,
            ANTHROPIC_API_KEY=KEY,
            ANTHROPIC_MODEL=MODEL,
            ANTHROPIC_SMALL_FAST_MODEL=MODEL,
            **dict.fromkeys(switches, "1"),
        ),
        {},
    )


CODEX_SETTINGS = """\
model = "{model}"
model_provider = "tao"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.tao]
name = "TAO"
base_url = "{url}/v1"
env_key = "TAO_API_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
"""


def codex(job: Job) -> Launch:
    """`codex exec`: OpenAI responses. Without its sandbox, which needs namespaces that a container may not grant."""
    command = [
        *(str(PROGRAMS["codex"]), "exec", "--skip-git-repo-check", "--json"),
        *("--sandbox", "danger-full-access", job.task),
    ]
    settings = CODEX_SETTINGS.format(model=MODEL, url=job.url)
    return Launch(command, environment(job.home, TAO_API_KEY=KEY), {".codex/config.toml": settings})


def opencode(job: Job) -> Launch:
    """`opencode run`: OpenAI chat completions."""
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "provider": {
            "local": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{job.url}/v1", "apiKey": KEY},
                "models": {MODEL: {"limit": {"context": 65_536, "output": 1024}}},
            }
        },
    }
    switches = ("AUTOUPDATE", "LSP_DOWNLOAD", "MODELS_FETCH", "DEFAULT_PLUGINS")
    return Launch(
        [str(PROGRAMS["opencode"]), "run", "--model", f"local/{MODEL}", job.task],
        environment(job.home, **{f"OPENCODE_DISABLE_{name}": "1" for name in switches}),
        {".config/opencode/opencode.json": json.dumps(settings)},
    )


def mini(job: Job) -> Launch:
    """`mini --yolo`: OpenAI chat completions, not streamed."""
    trajectory = job.home / "trajectory.json"
    command = mini_swe_agent.command(f"{job.url}/v1", job.task, trajectory, model=MODEL)
    command += ["--config", f"agent.step_limit={job.turns_max}"]
    files = {}
    if job.answer_regex:
        body = {"structured_outputs": {"regex": job.answer_regex}}
        files["answers.yaml"] = json.dumps({"model": {"model_kwargs": {"extra_body": body}}})
        command += ["--config", str(job.home / "answers.yaml")]
    return Launch(command, environment(job.home, **mini_swe_agent.ENVIRONMENT), files)


AGENTS = {
    agent.name: agent
    for agent in (
        Agent("claude-code", "Bash", claude_code),
        Agent("codex", "exec_command", codex),
        Agent("opencode", "bash", opencode),
        Agent("mini-swe-agent", "bash", mini),
    )
}
