"""What two workers do not have in common. That they are distinguished is in test_resume."""

from __future__ import annotations

from nightingale.server.fingerprint import decisive, difference


def test_a_difference_names_what_differs_and_not_its_values() -> None:
    one = {"model": "a", "canary": "1", "torch": "2.9"}
    assert difference(one, dict(one)) == ()
    assert difference(one, {**one, "canary": "2"}) == ("canary",)
    assert difference(one, {"model": "a", "canary": "2"}) == ("canary", "torch")


def test_decisive_differences_are_those_that_give_a_token_log_another_meaning() -> None:
    assert decisive(("canary", "instructions", "plan", "build")) == ()
    assert decisive(("canary", "weights", "windows")) == ("weights", "windows")
