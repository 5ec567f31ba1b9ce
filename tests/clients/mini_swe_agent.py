"""Runs mini-swe-agent, unmodified and headless, against an endpoint that speaks OpenAI's chat completions.

The program lives in an environment of its own (`make clients`); TAO_MINI_SWE_AGENT names another one. It sends
nothing that identifies its session. It offers the model one tool, `bash(command)`, and ends when the first line
that a command prints is COMPLETION_LINE.
"""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPLETION_LINE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
ENVIRONMENT = {
    "OPENAI_API_KEY": "not-needed",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # no look-up of prices on the network
    "MSWEA_CONFIGURED": "true",
    "MSWEA_COST_TRACKING": "ignore_errors",
}
"""What it needs beside PATH and HOME."""


def executable() -> Path:
    """The `mini` command; raises FileNotFoundError that says how to install it."""
    default = ROOT / ".venvs" / "mini-swe-agent" / "bin" / "mini"
    path = Path(os.environ.get("TAO_MINI_SWE_AGENT", default))
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: run `make clients`, or set TAO_MINI_SWE_AGENT")
    return path


def command(base_url: str, task: str, trajectory: Path, *, model: str) -> list[str]:
    """Its command line for one task; the trajectory is left at that path. `base_url` ends in /v1."""
    return [
        *(str(executable()), "--model", f"openai/{model}", "--task", task, "--yolo", "--exit-immediately"),
        *("--config", "mini.yaml", "--config", f"model.model_kwargs.api_base={base_url}"),
        *("--output", str(trajectory)),
    ]


def run_task(
    base_url: str, task: str, directory: Path, *, model: str = "tiny", seconds_max: float = 90.0
) -> str:
    """Let the agent do `task` in `directory`; returns what it printed. `base_url` ends in /v1.

    Its trajectory is left in `directory/trajectory.json`. Raises subprocess.CalledProcessError when it fails
    and subprocess.TimeoutExpired when it takes longer than `seconds_max`.
    """
    home = directory / "home"
    home.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command(base_url, task, directory / "trajectory.json", model=model),
        check=True,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=directory,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **ENVIRONMENT},
        timeout=seconds_max,
    )
    return done.stdout
