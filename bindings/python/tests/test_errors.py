"""One tree of exceptions, the same codes as in every language."""

import copy
import json
import pickle

import pytest
from conftest import REPOSITORY

import polylatch
from polylatch import _errors

TABLE = json.loads((REPOSITORY / "tests/conformance/errors.json").read_text())


ROWS = TABLE["errors"] + TABLE["idempotency_errors"]


def make(code, reason=None):
    return _errors.make(code, "what happened", "never", "maybe", "what to do", reason, {"lock": "a"})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["code"])
def test_every_code_has_its_class(row):
    kind = getattr(polylatch, row["kind"])
    assert issubclass(kind, polylatch.Error)
    assert kind.code == row["code"]
    assert kind.retry == row["retry"]
    error = make(row["code"])
    assert type(error) is kind
    assert (str(error), error.effect, error.hint, error.context) == (
        "what happened",
        "maybe",
        "what to do",
        {"lock": "a"},
    )


def test_there_are_no_other_classes():
    kinds = {kind.__name__ for kind in polylatch.Error.__subclasses__()}
    assert kinds == {row["kind"] for row in ROWS}


def test_tracebacks_name_errors_where_programs_find_them():
    assert {kind.__module__ for kind in (polylatch.Error, *polylatch.Error.__subclasses__())} == {"polylatch"}


def test_an_unknown_code_becomes_the_parent():
    error = make("from_the_future")
    assert type(error) is polylatch.Error
    assert error.code == "from_the_future"


@pytest.mark.parametrize("reason", TABLE["lost_reasons"])
def test_every_reason_of_a_loss_is_told(reason):
    assert make("lease_lost", reason).reason == reason


def test_errors_are_the_languages_own_kinds_too():
    assert issubclass(polylatch.WaitTimeout, TimeoutError)
    assert issubclass(polylatch.BackendUnavailable, ConnectionError)
    assert issubclass(polylatch.InvalidArgument, ValueError)
    assert issubclass(polylatch.InvalidConfig, ValueError)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["code"])
def test_an_error_travels_to_another_process_whole(row):
    error = make(row["code"], "expired")
    for travelled in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(travelled) is type(error)
        assert str(travelled) == "what happened"
        assert travelled.__dict__ == error.__dict__


def test_a_store_that_is_not_there_is_unavailable_and_may_be_tried_again():
    with pytest.raises(polylatch.BackendUnavailable) as caught:
        polylatch.connect("redis://:secret@127.0.0.1:1", timeout=0.5)
    error = caught.value
    assert (error.retry, error.effect) == ("after_backoff", "none")
    assert error.context["backend"] == "redis"
    assert "secret" not in str(error) + repr(error) + str(error.context)
