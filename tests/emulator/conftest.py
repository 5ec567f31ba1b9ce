"""A running emulator and a plain HTTP client for each test that asks for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from tao.emulator import Emulator, EmulatorConfig, start_emulator
from tao.enginemodel import load_profile

Start = Callable[..., Awaitable[Emulator]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts emulators (settings as keywords; speed 500, model "m") and closes them."""
    running: list[Emulator] = []

    async def begin(**settings: Any) -> Emulator:
        defaults = EmulatorConfig(profile=load_profile("qwen3-32b-tp2-h100"), speed=500.0, model="m")
        emulator = await start_emulator(replace(defaults, **settings))
        running.append(emulator)
        return emulator

    yield begin
    for emulator in running:
        await emulator.close()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session
