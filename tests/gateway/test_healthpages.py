"""Health pages that are late: excused while the last answer was good, and not for ever."""

import asyncio

import pytest

from tao.gateway.healthpages import HealthPages

URL = "http://r"
SOON = 0.01


class Engine:
    """Answers its health page when it is told to."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[int]] = []

    async def ask(self, base_url: str, seconds_max: float) -> int:
        assert (base_url, seconds_max) == (URL, 30.0)
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]

    async def says(self, answer: int | Exception) -> None:
        """The page that is asked for at present comes."""
        if isinstance(answer, Exception):
            self.asked[-1].set_exception(answer)
        else:
            self.asked[-1].set_result(answer)
        for _ in range(3):  # what waits for it goes on
            await asyncio.sleep(0)


async def answered(pages: HealthPages, engine: Engine, answer: int | Exception) -> int | None:
    looking = asyncio.ensure_future(pages.status(URL, 1.0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await engine.says(answer)
    return await looking


async def test_a_late_page_is_excused_and_asked_for_once() -> None:
    engine = Engine()
    pages = HealthPages(engine.ask)
    assert await answered(pages, engine, 200) == 200
    assert [await pages.status(URL, SOON) for _ in range(3)] == [None, None, None]
    assert len(engine.asked) == 2
    assert await answered(pages, engine, 200) == 200
    await pages.close()


async def test_before_its_first_good_answer_none_is_excused() -> None:
    engine = Engine()
    pages = HealthPages(engine.ask)
    with pytest.raises(TimeoutError):
        await pages.status(URL, SOON)
    assert await answered(pages, engine, 200) == 200
    assert await pages.status(URL, SOON) is None
    await pages.close()


@pytest.mark.parametrize("answer", [503, TimeoutError(), OSError("cut")])
async def test_after_a_bad_answer_lateness_counts_until_a_good_one(answer: int | Exception) -> None:
    engine = Engine()
    pages = HealthPages(engine.ask)
    await answered(pages, engine, 200)
    assert await pages.status(URL, SOON) is None
    await engine.says(answer)  # between two looks
    with pytest.raises(TimeoutError):
        await pages.status(URL, SOON)
    await engine.says(200)
    assert await pages.status(URL, SOON) is None
    await pages.close()
    assert all(asked.done() for asked in engine.asked)


async def test_what_asking_raises_is_raised() -> None:
    engine = Engine()
    pages = HealthPages(engine.ask)
    with pytest.raises(OSError, match="cut"):
        await answered(pages, engine, OSError("cut"))


async def test_what_is_forgotten_is_asked_no_more_and_excuses_nobody() -> None:
    engine = Engine()
    pages = HealthPages(engine.ask)
    await answered(pages, engine, 200)
    looking = asyncio.ensure_future(pages.status(URL, 1.0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    pages.forget(URL)
    pages.forget(URL)
    with pytest.raises(TimeoutError, match="forgotten"):
        await looking
    assert engine.asked[-1].cancelled()
    with pytest.raises(TimeoutError, match="does not answer"):
        await pages.status(URL, SOON)  # what it had said of itself is gone too
    await pages.close()
