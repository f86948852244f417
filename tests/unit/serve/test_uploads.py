"""JSON bodies that two readers could take for different things, or that take far more memory than their bytes."""

import pytest

from macs.serve.uploads import Refused, loaded


def test_a_key_is_given_once() -> None:
    assert loaded(b'{"a": [{"b": 1}, {"b": 2}], "b": 3}', 100) == {"a": [{"b": 1}, {"b": 2}], "b": 3}
    for body in (b'{"threshold": 1, "threshold": 2}', b'{"parameters": [{"threshold": 1, "threshol\\u0064": 2}]}'):
        with pytest.raises(Refused, match="The key 'threshold' is given more than once") as refused:
            loaded(body, 100)
        assert refused.value.status == 400


def test_values_are_counted_before_they_are_parsed() -> None:
    assert loaded(b"[[], [], []]", 6) == [[], [], []]
    with pytest.raises(Refused, match="this one holds more"):
        loaded(b"[[], [], []]", 5)
