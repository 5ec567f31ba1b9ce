"""Token estimates: learned per session, counted where nothing is reported."""

from tao.gateway.wire.facts import ResponseFacts, Usage
from tao.gateway.wire.tokens import TokenEstimator, output_tokens


def test_the_ratio_is_learned_per_session_and_slowly_for_all() -> None:
    estimator = TokenEstimator()
    assert estimator.prompt_tokens("a", 4000) == 1000
    estimator.learn("a", 4000, 2000, 0.0)
    assert estimator.prompt_tokens("a", 8000) == 4000
    assert 1000 < estimator.prompt_tokens("b", 4000) < 1100
    estimator.forget("a")
    assert estimator.bytes_per_token("a") == estimator.bytes_per_token("b")


def test_senseless_reports_are_not_learned_and_ratios_are_clamped() -> None:
    estimator = TokenEstimator()
    estimator.learn("a", 4000, 0, 0.0)
    estimator.learn("a", 0, 4000, 0.0)
    assert estimator.bytes_per_token("a") == 4.0
    estimator.learn("a", 10**9, 100, 0.0)
    assert estimator.bytes_per_token("a") == 40.0
    assert estimator.prompt_tokens("a", 0) == 1


def test_sessions_are_bounded_and_expire() -> None:
    estimator = TokenEstimator(sessions_max=2, idle_seconds=10.0)
    for name in "abc":
        estimator.learn(name, 4000, 2000, 0.0)
    assert estimator.bytes_per_token("a") != 2.0
    assert estimator.expire(11.0) == 2


def test_output_is_reported_or_counted() -> None:
    assert output_tokens(ResponseFacts(usage=Usage(1, None, 77), output_deltas=5)) == 77
    assert output_tokens(ResponseFacts(output_deltas=12, output_chars=30)) == 12
    assert output_tokens(ResponseFacts(output_deltas=2, output_chars=400)) == 100
    assert output_tokens(ResponseFacts(output_deltas=2, output_chars=400), max_tokens=50) == 50
