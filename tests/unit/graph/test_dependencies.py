"""`Topology`: Cues' literals, neighbours, order, pieces, and changes, on cases of Cues' own suite and beyond."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import GraphError, Topology

of = Topology.of


def edges(nodes: str, *pairs: str) -> Topology:
    """Make a topology whose nodes are letters; the pair "ab" is an edge from a to b."""
    return Topology(tuple(nodes), tuple((pair[0], pair[1]) for pair in pairs))


@pytest.mark.parametrize(
    ("literals", "expected"),
    [
        ([[], (), {}, set(), None, {(): ()}, {(None,): []}, {None, (None,)}], edges("")),
        ([{"a", "b"}, {"a", "b", None}, {("a", None), "b", None}, {"a", frozenset({"b"})}], edges("ab")),
        ([{"a", of({"b": "c"})}, {"a", ("b", "c")}], edges("abc", "bc")),
        (["abcd", [*"abcd"], ["a", ["b", ["c", ["d"]]]], ["a", {"b": ["c", {"d"}]}]], None),
        ([{"a": "b"}, ["a", "b"]], edges("ab", "ab")),
        ([{"a": ["b", "c"]}], edges("abc", "ab", "bc")),
        ([{frozenset("ad"): ["b", "c"], "b": ["e"]}], edges("abcde", "ab", "db", "bc", "be")),
        (
            [[{"a", "b"}, {("c", "d", "e"), ("f", "g", "h")}]],
            edges("abcdefgh", "ac", "bc", "af", "bf", "cd", "de", "fg", "gh"),
        ),
        ([{"a": {"b", "c"}, ("d",): {"e"}, "c": "e"}], edges("abcde", "ab", "ac", "de", "ce")),
    ],
)
def test_literals_of_cues_mean_what_they_mean_there(literals: list[Any], expected: Topology | None) -> None:
    """The cases of Cues' `graph-test`; members of sets are tuples and frozensets, which can be hashed."""
    if expected is None:  # a name of several letters is one node, not a list of them
        assert of(literals.pop(0)) == Topology(("abcd",))
        expected = edges("abcd", "ab", "bc", "cd")

    assert [of(literal) for literal in literals] == [expected] * len(literals)


def test_pieces_follow_each_other_from_last_to_first_nodes() -> None:
    """As between any two groups of a list: what comes in between is not connected."""
    assert of(["a", {"b", "c"}, {"d", "e"}]) == edges("abcde", "ab", "ac", "bd", "cd", "be", "ce")
    assert of(["a", "b"]).then({"c": "d"}) == of([*"abcd"])
    assert of({"a", ("b", "c")}).then("d") == edges("abcd", "bc", "ad", "cd")


def test_order_puts_each_node_behind_its_dependencies() -> None:
    """The same in each process, by the order of declaration; Cues' test compares pairs, its order has no rule."""
    whole = of([{"a", "b"}, {("c", "d", "e"), ("f", "g", "h")}])

    order = whole.order
    assert sorted(order) == [*"abcdefgh"]
    assert all(order.index(before) < order.index(after) for before, after in whole.edges)
    assert sorted("hgf", key=order.index) == [*"fgh"]
    assert of([*"abc"]).order == ("a", "b", "c")


def test_order_refuses_a_cycle_and_names_it() -> None:
    """There is none; the message goes round once."""
    with pytest.raises(GraphError, match=r"Topology: (a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c) is a cycle"):
        _ = of(["a", "b", "c", "d"]).depend("a", "c").order


def test_in_nodes_and_out_nodes_are_where_messages_enter_and_end() -> None:
    """The cases of Cues' `in-and-out-node-test`."""
    assert of(set()).out_nodes == of(set()).in_nodes == set()
    branches = of({"a": {"b", "c"}, frozenset("dc"): {"e"}})
    assert branches.out_nodes == {"b", "e"}
    assert branches.in_nodes == {"a", "d"}
    fan = of(["a", {"b", "c"}, {"d", "e"}])
    assert fan.out_nodes == {"d", "e"}
    assert fan.in_nodes == {"a"}


def test_neighbours_are_direct_transitive_or_two_hops_away() -> None:
    """With topics as nodes, two hops lead from processor to processor."""
    whole = of({"check": "checked", ("checked", "route"): {"all", "big"}, "big": "bill"})

    assert whole.dependencies("route") == {"checked"}
    assert whole.dependents("route") == {"all", "big"}
    assert whole.two_hops("route") == {"check"}
    assert whole.two_hops("checked") == set()
    assert whole.transitive_dependencies("bill") == {"check", "checked", "route", "big"}
    assert whole.transitive_dependencies("all", "checked") == {"check", "checked", "route"}
    assert whole.transitive_dependents("route") == {"all", "big", "bill"}
    assert whole.depends("bill", on="check")
    assert not whole.depends("check", on="bill")


def test_components_are_the_pieces_that_no_edge_connects() -> None:
    """In the order of declaration; merged, they are the whole again."""
    whole = of({"a": "b"}).merge(of({"c": "d"}), of("e"), of({"f": "b"}))

    pieces = whole.components
    assert pieces == (edges("abf", "ab", "fb"), edges("cd", "cd"), edges("e"))
    assert pieces[0].merge(*pieces[1:]) == whole
    assert Topology().components == ()


def test_cycles_are_groups_that_reach_each_other() -> None:
    """A node that feeds itself is one; what only leads to a cycle is not in it."""
    assert edges("abcde", "ab", "bc", "cb", "cd", "ee").cycles == (("b", "c"), ("e",))


def test_changes_return_new_topologies() -> None:
    """The old one stays as it is, so it can be a key."""
    whole = of(["a", "b", "c"])
    same = edges("cba", "bc", "ab")
    assert {whole: 1}[same] == 1

    assert whole.add("d", "a") == edges("abcd", "ab", "bc")
    assert whole.remove("b") == edges("ac")
    assert whole.depend("c", "a", "d") == edges("abcd", "ab", "bc", "ac", "dc")
    assert whole.undepend("b", "a") == edges("abc", "bc")
    assert whole == of(["a", "b", "c"]) != of(["a", "c", "b"])
    assert whole != "a b c"


def test_topologies_are_isomorphic_up_to_the_names() -> None:
    """The direction of the edges counts."""
    assert of({"a": {"b", "c"}}).isomorphic(of({"x": {"z", "y"}}))
    assert not of({"a": {"b", "c"}}).isomorphic(of({frozenset("xy"): "z"}))
    assert not of({"a": "b"}).isomorphic(of({"a", "b"}))
    assert (
        not edges("abc", "ab", "bc", "ca")
        .merge(edges("def", "de", "ef", "fd"))
        .isomorphic(edges("abcdef", "ab", "bc", "cd", "de", "ef", "fa"))
    )


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: of([1]), r"Topology.of\(1\): an int is not a step"),
        (lambda: of({"a": b"b"}), "a bytes is not a step"),
        (lambda: Topology((1,)), "1 is not a name"),  # type: ignore[arg-type]
        (lambda: Topology(("a", "b"), ("ab",)), "'ab' is not an edge. Give pairs of names"),  # type: ignore[arg-type]
        (lambda: Topology(("orders",), (("orders", "chek"),)), "there is no 'chek'"),
        (lambda: of(["orders", "check"]).dependents("chek"), r"'chek' \(did you mean 'check'\?\)"),
        (lambda: of("a").remove("b"), "Its nodes are 'a'"),
        (lambda: of(["a", "b", "c"]).undepend("c", "a"), r"does not depend on 'a' directly. Its dependencies are 'b'"),
        (lambda: of("a").depends("a", on="b"), "there is no 'b'"),
    ],
)
def test_wrong_names_and_literals_are_refused(wrong: Any, text: str) -> None:
    """With what is there instead."""
    with pytest.raises(GraphError, match=text):
        wrong()
