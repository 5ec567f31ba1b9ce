"""Metrics pages of vLLM and SGLang: present and older names, ranks, odd numbers, missing and broken lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao.engines import (
    EngineStatus,
    PlainAdapter,
    RankStatus,
    ServedTokens,
    SglangAdapter,
    VllmAdapter,
    adapter_for,
    read_status,
)
from tao.engines.samples import LINES_MAX, PROBLEMS_MAX

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 4.2e-05
vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 1.5e+06
vllm:prefix_cache_queries_created{engine="0",model_name="tiny"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 1200.0
vllm:num_preemptions_total{engine="0",model_name="tiny"} 2.0
vllm:prompt_tokens_total{engine="0",model_name="tiny"} 5000.0
vllm:generation_tokens_total{engine="0",model_name="tiny"} 700.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="tiny"} 0.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="1000"} 1.0
"""
SGLANG = """\
sglang:num_running_reqs{model_name="m",tp_rank="0"} 4.0
sglang:num_running_reqs{model_name="m",tp_rank="1"} 4.0
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 2.0
sglang:token_usage{model_name="m",tp_rank="0"} 0.25
sglang:max_total_num_tokens{model_name="m",tp_rank="0"} 20480.0
sglang:max_total_num_tokens{model_name="m",tp_rank="1"} 20480.0
sglang:prompt_tokens_total{model_name="m"} 900.0
sglang:cached_tokens_total{model_name="m"} 300.0
sglang:generation_tokens_total{model_name="m"} 100.0
sglang:num_retracted_reqs{model_name="m",pid="12"} 3.0
sglang:num_retracted_requests_total{model_name="m"} 1.0
"""


def test_a_vllm_page() -> None:
    status = read_status(VLLM.encode())
    assert status == EngineStatus(
        engine="vllm",
        capacity_tokens=16_000,
        running=3,
        waiting=1,
        kv_usage=4.2e-05,
        prefix_query_tokens=1.5e6,
        prefix_hit_tokens=1200.0,
        preemptions=2.0,
        prompt_tokens=5000.0,
        output_tokens=700.0,
        served=ServedTokens({"0": 5000.0}, {"0": 700.0}),
        ranks=(RankStatus("0", 16_000, 3, 1, 4.2e-05),),
    )


def test_capacity_of_all_ranks_is_added_up_and_kept_apart() -> None:
    other = VLLM.replace('engine="0"', 'engine="1"').replace('num_gpu_blocks="1000"', 'num_gpu_blocks="3000"')
    other = other.replace("4.2e-05", "1.0")
    last = other.replace('engine="1"', 'engine="10"')
    status = read_status((VLLM + last + other).encode())
    assert (status.capacity_tokens, status.running, status.waiting) == (112_000, 9, 3)
    assert [(row.rank, row.capacity_tokens) for row in status.ranks] == [
        ("0", 16_000),
        ("1", 48_000),
        ("10", 48_000),
    ]
    assert status.kv_usage == pytest.approx(96 / 112, abs=1e-4)
    assert status.preemptions == 6.0


def test_three_ranks_on_one_page_in_scientific_notation_with_a_line_missing() -> None:
    """All that may come together on one page: nothing of one rank counts as another's, and what is missing is said."""
    ranks = [VLLM.replace('engine="0"', f'engine="{rank}"') for rank in range(3)]
    ranks[1] = ranks[1].replace("4.2e-05", "8.1E-01").replace("} 3.0", "} 1e+01")
    ranks[2] = "".join(line for line in ranks[2].splitlines(keepends=True) if "requests_running{" not in line)
    status = read_status("".join(ranks).encode())
    assert (status.capacity_tokens, status.running, status.waiting) == (48_000, None, 3)
    assert [(row.rank, row.running, row.kv_usage) for row in status.ranks] == [
        ("0", 3, 4.2e-05),
        ("1", 10, 0.81),
        ("2", None, 4.2e-05),
    ]
    assert status.kv_usage == pytest.approx((0.81 + 2 * 4.2e-05) / 3)
    assert (status.preemptions, status.prefix_query_tokens) == (6.0, 4.5e6)
    assert status.problems == ("metrics page tells no running of rank 2",)


def test_when_the_process_began_is_read_where_the_page_tells() -> None:
    assert read_status(VLLM.encode()).started_at is None
    for page in (VLLM, SGLANG):
        assert (
            read_status((page + "process_start_time_seconds 1.79523e+09\n").encode()).started_at == 1.79523e9
        )


@pytest.mark.parametrize(
    ("page", "old", "new"),
    [
        (VLLM, "} 700.0", "} NaN"),
        (VLLM, "} 700.0", "} 7x"),
        (VLLM, 'vllm:generation_tokens_total{engine="0",model_name="tiny"} 700.0\n', ""),
        (
            VLLM + VLLM.replace('engine="0"', 'engine="1"'),
            'vllm:generation_tokens_total{engine="1",model_name="tiny"} 700.0\n',
            "",
        ),
        (SGLANG, "} 100.0", "} NaN"),
    ],
    ids=["no number", "unreadable", "missing", "missing of one rank", "SGLang"],
)
def test_a_counter_that_is_not_told_in_full_has_not_fallen(page: str, old: str, new: str) -> None:
    before, now = read_status(page.encode()), read_status(page.replace(old, new).encode())
    assert (now.served.prompt, now.output_tokens) == (before.served.prompt, None)
    assert len(now.served.output) < len(before.served.output)
    assert not now.served.is_below(before.served)
    assert now.served.or_last(before.served) == before.served
    assert any("tokens_total" in problem or "unreadable" in problem for problem in now.problems)


def test_ranks_are_compared_each_by_itself() -> None:
    one, two = VLLM, VLLM.replace('engine="0"', 'engine="1"')
    before = read_status((one + two).encode()).served
    assert not read_status(one.encode()).served.is_below(before), "the page of one rank is missing"
    grown = one.replace("} 5000.0", "} 90000.0")
    assert read_status((grown + two.replace("} 700.0", "} 10.0")).encode()).served.is_below(before)


@pytest.mark.parametrize("number", ["1e308", "-5"])
def test_a_counter_that_no_engine_has_is_named_and_no_restart(number: str) -> None:
    before, odd = read_status(VLLM.encode()), read_status(VLLM.replace("} 700.0", "} " + number).encode())
    assert odd.output_tokens is None
    assert any("generation_tokens_total of rank 0 is" in problem for problem in odd.problems)
    assert not odd.served.is_below(before.served)
    assert not before.served.is_below(odd.served.or_last(before.served))


@pytest.mark.parametrize("moment", ["0", "-1", "1e308"])
def test_a_start_that_cannot_be_is_named_and_left_out(moment: str) -> None:
    status = read_status((VLLM + f"process_start_time_seconds {moment}\n").encode())
    assert status.started_at is None
    assert any("process_start_time_seconds is" in problem for problem in status.problems)


def test_a_counter_that_has_fallen_is_a_restart() -> None:
    before = read_status(VLLM.encode()).served
    assert read_status(VLLM.replace("} 700.0", "} 699.0").encode()).served.is_below(before)
    assert read_status(VLLM.replace("} 5000.0", "} 0.0").encode()).served.is_below(before)
    assert not read_status(VLLM.replace("} 700.0", "} 7e3").encode()).served.is_below(before)
    lines = [line for line in SGLANG.splitlines() if "tokens_total" not in line]
    just_started = read_status("\n".join(lines).encode()).served
    assert just_started.is_below(read_status(SGLANG.encode()).served)


def test_older_names() -> None:
    old = VLLM.replace("kv_cache_usage", "gpu_cache_usage").replace("prefix_cache", "gpu_prefix_cache")
    old = old.replace('engine="0",', "")
    status = read_status(old.encode())
    assert (status.kv_usage, status.prefix_query_tokens, status.prefix_hit_tokens) == (4.2e-05, 1.5e6, 1200.0)
    assert (status.capacity_tokens, status.problems) == (16_000, ())


def test_the_cache_size_in_tokens_is_preferred_where_it_is_told() -> None:
    page = VLLM.replace('num_gpu_blocks="1000"', 'kv_cache_size_tokens="15984",num_gpu_blocks="1000"')
    assert read_status(page.encode()).capacity_tokens == 15_984
    page = page.replace('"15984"', '"None"')
    assert read_status(page.encode()).capacity_tokens == 16_000


@pytest.mark.parametrize(
    "name",
    [
        "vllm:cache_config_info",
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:num_preemptions_total",
    ],
)
def test_a_missing_line_is_named_and_the_others_still_count(name: str) -> None:
    lines = [line for line in VLLM.splitlines() if not line.startswith(name + "{")]
    status = read_status("\n".join(lines).encode())
    assert len(status.problems) == 1
    assert name.removesuffix("_total").split(":")[1] in status.problems[0]
    told = (status.capacity_tokens, status.running, status.waiting, status.kv_usage, status.preemptions)
    assert sum(value is not None for value in told) >= 4


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("4.2e-05", "NaN", "vllm:kv_cache_usage_perc is nan (metrics line 6)"),
        ("4.2e-05", "+Inf", "vllm:kv_cache_usage_perc is inf"),
        ("4.2e-05", "n/a", "metrics line 6 is unreadable"),
        ("4.2e-05", "1e308", "vllm:kv_cache_usage_perc of rank 0 is 1e+308"),
        ("4.2e-05", "-0.1", "vllm:kv_cache_usage_perc of rank 0 is -0.1"),
        (
            "} 1.0\nvllm:num_requests_waiting_by",
            "} 1e300\nvllm:num_requests_waiting_by",
            "waiting of rank 0 is 1e+300",
        ),
        ('model_name="tiny"} 4.2e-05', "model_name=", "metrics line 6 is unreadable"),
        ('num_gpu_blocks="1000"', 'num_gpu_blocks="None"', "tells no capacity"),
        ('block_size="16"', 'block_size="0"', "tells no capacity"),
    ],
)
def test_bad_values_are_named(old: str, new: str, problem: str) -> None:
    status = read_status(VLLM.replace(old, new).encode())
    assert any(problem in told for told in status.problems), status.problems
    assert status.running == 3


def test_a_page_in_which_one_rank_tells_no_capacity_has_none_at_all() -> None:
    other = VLLM.replace('engine="0"', 'engine="1"').replace('num_gpu_blocks="1000"', 'num_gpu_blocks="None"')
    assert read_status((VLLM + other).encode()).capacity_tokens is None


def test_an_sglang_page() -> None:
    status = read_status(SGLANG.encode())
    assert (status.engine, status.capacity_tokens, status.running, status.waiting) == ("sglang", 20_480, 4, 2)
    assert (status.kv_usage, status.prefix_query_tokens, status.prefix_hit_tokens) == (0.25, 900.0, 300.0)
    assert (status.preemptions, status.served, status.problems) == (
        1.0,
        ServedTokens({"0": 900.0}, {"0": 100.0}),
        (),
    )


def test_sglang_data_parallel_ranks_are_added_up() -> None:
    other = SGLANG.replace('model_name="m"', 'dp_rank="1",model_name="m"')
    first = SGLANG.replace('model_name="m"', 'dp_rank="0",model_name="m"')
    status = read_status((first + other).encode())
    assert (status.capacity_tokens, status.running, len(status.ranks)) == (40_960, 8, 2)


@pytest.mark.parametrize("page", [b"", b"python_info 1.0\n", b"<html>404</html>", b"\xff\xfe"])
def test_a_page_of_another_server_says_that_nothing_is_known(page: bytes) -> None:
    status = read_status(page)
    assert (status.engine, status.capacity_tokens, status.served) == ("unknown", None, ServedTokens())
    assert "capacity and load are unknown" in status.problems[0]


def test_adapters() -> None:
    assert isinstance(adapter_for(VLLM.encode()), VllmAdapter)
    assert isinstance(adapter_for(SGLANG.encode()), SglangAdapter)
    assert isinstance(adapter_for(b""), PlainAdapter)
    for adapter in (VllmAdapter(), SglangAdapter(), PlainAdapter()):
        assert adapter.health_path.startswith("/")
        assert adapter.metrics_path == "/metrics"
        assert adapter.read(b"").engine == adapter.name


names = st.sampled_from([line.split("{")[0] for line in VLLM.splitlines() if line.startswith("vllm:")])
labels = st.sampled_from(
    ["", "{}", '{engine="1"}', '{engine="', "{engine=1}", '{a="\\"}', "{", '{engine="é\\n"}']
)
numbers = st.sampled_from(["1", "1e400", "-1", "NaN", "", "x", "1 2", "0x10", "1.0 # {} 3"]) | st.text(
    max_size=5
)


@given(st.lists(st.tuples(names, labels, numbers), max_size=12), st.binary(max_size=60))
def test_no_page_raises(lines: list[tuple[str, str, str]], junk: bytes) -> None:
    page = "\n".join(f"{name}{label} {number}" for name, label, number in lines).encode("utf-8", "replace")
    for text in (page, page + b"\r\n" + junk, junk):
        status = read_status(text)
        assert status.capacity_tokens is None or status.capacity_tokens > 0
        assert status.running is None or status.running >= 0


def test_of_many_broken_lines_the_first_are_named_and_the_others_counted() -> None:
    status = read_status(VLLM.encode() + b'vllm:num_requests_running{engine="0"} much\n' * 1_000)
    assert len(status.problems) <= PROBLEMS_MAX + 10
    assert any("and 992 more problems of the metrics page" in problem for problem in status.problems)


def test_a_page_that_repeats_itself_without_end_is_read_up_to_a_bound() -> None:
    line = b'vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.0\n'
    status = read_status(VLLM.encode() + line * (LINES_MAX + 5))
    assert any(f"only the first {LINES_MAX} were read" in problem for problem in status.problems)
    assert status.running == 3
