"""Seeded problems for tests: tiny ones that can be enumerated, and pools like those of the benchmark."""

from collections.abc import Iterator
from itertools import combinations_with_replacement, product
from random import Random

from tao.planning import Item, Knapsack, Problem, SparseValues, Triple

ItemKind = tuple[int, int, int, int]
"""Weight, credit in the first knapsack, credit in the second, readiness."""


def all_tiny_problems() -> Iterator[Problem]:
    """Every problem up to symmetry: at most 4 items of weight 1-2, 2 knapsacks of 1-3, binary credit and readiness.

    Order of items and names of knapsacks do not matter, so one of each class of equal problems is enough.
    """
    kinds: list[ItemKind] = list(product((1, 2), (0, 1), (0, 1), (0, 1)))
    for capacities in combinations_with_replacement((1, 2, 3), 2):
        for count in range(5):
            for items in combinations_with_replacement(kinds, count):
                mirrored = tuple(sorted((w, b, a, r) for w, a, b, r in items))
                if capacities[0] < capacities[1] or items <= mirrored:
                    yield tiny_problem(capacities, items)


def tiny_problem(capacities: tuple[int, ...], items: tuple[ItemKind, ...]) -> Problem:
    return Problem(
        (Knapsack("a", capacities[0]), Knapsack("b", capacities[1])),
        tuple(
            Item(f"i{n}", weight, {"a": Triple(in_a, ready, weight), "b": Triple(in_b, ready, weight)})
            for n, (weight, in_a, in_b, ready) in enumerate(items)
        ),
    )


def random_problem(random: Random, items: int, knapsacks: int) -> Problem:
    """Small numbers, so that ties are common; some pairs not eligible, some knapsacks with slots."""
    names = [f"k{b}" for b in range(knapsacks)]
    return Problem(
        tuple(Knapsack(b, random.randint(0, 30), random.choice((None, None, 1, 2))) for b in names),
        tuple(_random_item(random, f"i{i}", names) for i in range(items)),
    )


def _random_item(random: Random, name: str, knapsacks: list[str]) -> Item:
    readiness, weight = random.randint(0, 1), random.randint(1, 15)
    footprint = random.randint(0, 15)
    eligible = [b for b in knapsacks if random.random() < 0.8]
    values = {b: Triple(random.choice((0, 0, 1, 3, 7)), readiness, footprint) for b in eligible}
    home = random.choice((None, *knapsacks, "gone"))
    return Item(name, weight, values, home, waited_seconds=random.choice((0.0, 5.0, 60.0, 90.0)))


def pool(seed: int, items: int, knapsacks: int) -> Problem:
    """Like the benchmark's: 30 % without credit, 15 % with credit in two knapsacks, log-normal weights."""
    random = Random(seed)
    names = tuple(f"k{b}" for b in range(knapsacks))
    capacities = tuple(Knapsack(b, int(400_000 * random.uniform(0.05, 0.4))) for b in names)
    return Problem(capacities, tuple(_pool_item(random, f"i{i}", names) for i in range(items)))


def _pool_item(random: Random, name: str, knapsacks: tuple[str, ...]) -> Item:
    footprint = int(random.lognormvariate(10.1, 0.6))
    draw = random.random()
    homes = random.sample(knapsacks, min(len(knapsacks), 0 if draw < 0.3 else 2 if draw < 0.45 else 1))
    credit = {b: int(footprint * random.uniform(0.1, 1.0)) for b in homes}
    values = SparseValues(knapsacks, credit, int(random.random() < 0.4), footprint)
    return Item(name, footprint + 512, values, homes[0] if homes else None)
