"""Node names: the order of slurmctld's table, and hostlists."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import hyperpod_names, site_names

from hyp_submit import nodes
from hyp_submit.errors import UsageError
from hyp_submit.nodes import MAX_NODES, expand, fold, natural_key


def test_digits_compare_as_numbers() -> None:
    names = ["ip-10-1-0-113", "ip-10-1-0-16", "ip-10-1-0-9", "ip-10-0-200-1", "ip-10-1-0-146"]
    assert sorted(names, key=natural_key) == [
        "ip-10-0-200-1",
        "ip-10-1-0-9",
        "ip-10-1-0-16",
        "ip-10-1-0-113",
        "ip-10-1-0-146",
    ]


def test_equal_numbers_of_other_width_keep_the_order_of_strings() -> None:
    assert sorted(["n1", "n001", "n01", "n2", "n02"], key=natural_key) == ["n001", "n01", "n1", "n02", "n2"]


@given(st.text("a0b1-", max_size=5), st.text("a0b1-", max_size=5))
@settings(deadline=None, max_examples=200)
def test_any_two_names_have_an_order(one: str, other: str) -> None:
    assert (natural_key(one) < natural_key(other)) + (natural_key(other) < natural_key(one)) == (one != other)


def test_a_name_without_a_number_folds_beside_the_same_name_with_one() -> None:
    assert expand(fold(["gpu1", "gpu"])) == ("gpu", "gpu1")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("  ", ()),
        ("(null)", ()),
        ("None", ()),
        ("n1", ("n1",)),
        ("n1,,n2, n3 ,", ("n1", "n2", "n3")),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[8-11]", ("n8", "n9", "n10", "n11")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("n[1,3-4],login1", ("n1", "n3", "n4", "login1")),
        ("ip-10-1-[0-1]-[4-5]", ("ip-10-1-0-4", "ip-10-1-0-5", "ip-10-1-1-4", "ip-10-1-1-5")),
        ("b,a[1-2]", ("b", "a1", "a2")),
        ("n[1-2]-ib", ("n1-ib", "n2-ib")),
    ],
)
def test_expand(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text", ["n[1-3", "n1-3]x[1]", "n[3-1]", "n[]", "n[a-b]", "n[1--2]", "n[1-9/2]", "n[[1]]", "a\x1b[31m"]
)
def test_a_broken_hostlist_is_a_usage_error_with_its_text(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        expand(text)
    assert str(caught.value).startswith(f"node list {text!r}: ")


@pytest.mark.parametrize("text", [f"n[1-{MAX_NODES + 1}]", "n[1-99999999999999999999]", "n[1-9999]-[1-9999]"])
def test_a_hostlist_that_explodes_is_refused_unexpanded(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        expand(text)
    assert str(caught.value) == f"node list {text!r}: names more than {MAX_NODES} nodes"


def test_the_largest_hostlist_allowed_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MAX_NODES", 4)
    assert expand("n[1-2],m[1-2]") == ("n1", "n2", "m1", "m2")
    with pytest.raises(UsageError):
        expand("n[1-2],m[1-3]")


def test_expand_keeps_the_order_written() -> None:
    assert expand("n[3,1]") == ("n3", "n1")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@group[1-2]", ("@group1", "@group2")),
        ("n[1-2]&n[3]", ("n1&n3", "n2&n3")),
        ("n[1-2]!n1", ("n1!n1", "n2!n1")),
        ("*[1]", ("*1",)),
    ],
)
def test_nothing_but_brackets_and_commas_has_a_meaning(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("n1",), "n1"),
        (("n1", "n1"), "n1"),
        (("n2", "n1", "n3"), "n[1-3]"),
        (("n9", "n10"), "n[9,10]"),
        (("n09", "n10"), "n[09-10]"),
        (("ip-10-1-0-5", "ip-10-1-0-4", "ip-10-1-1-5"), "ip-10-1-0-[4-5],ip-10-1-1-5"),
        (("login", "n2"), "login,n2"),
        (("n1-ib", "n2-ib"), "n[1-2]-ib"),
    ],
)
def test_fold(names: tuple[str, ...], text: str) -> None:
    assert fold(names) == text


@given(st.lists(hyperpod_names, max_size=12))
@settings(deadline=None, max_examples=150)
def test_folded_hyperpod_names_unfold_in_natural_order(names: list[str]) -> None:
    assert list(expand(fold(names))) == sorted(set(names), key=natural_key)


@given(st.lists(st.one_of(site_names, st.text("a01-", min_size=1, max_size=4)), max_size=8))
@settings(deadline=None, max_examples=200)
def test_folded_names_unfold_in_natural_order(names: list[str]) -> None:
    assert list(expand(fold(names))) == sorted(set(names), key=natural_key)


@pytest.mark.parametrize("names", [["a1", "b"], ["n1a", "n2b", "n3a"]])
def test_folded_names_unfold_in_natural_order_whatever_they_are(names: list[str]) -> None:
    assert list(expand(fold(names[::-1]))) == names
