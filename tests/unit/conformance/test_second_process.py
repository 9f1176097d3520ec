import pytest

from wharfinger.conformance import second_process
from wharfinger.conformance.exceptions import Violation


def test_process_that_does_not_answer_in_time_is_a_violation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(second_process, "_TIMEOUT", 0.0)
    with pytest.raises(Violation, match="has not described its nodes after 0 s"):
        second_process.described_elsewhere([], "fleet", {}, hash_seed=0)
