"""Complete listings: a listing that misses nodes is an error and not a smaller fleet."""

from collections.abc import Callable

import pytest

from tests.unit.ironic.model import Model
from wharfinger.exceptions import BackendError
from wharfinger_ironic.fleet import Fleet
from wharfinger_ironic.node import Node


@pytest.fixture
def model() -> Model:
    """An Ironic with 25 nodes and 8 nodes on a page."""
    model = Model()
    model.create(25)
    return model


@pytest.fixture
def fleet(model: Model) -> Fleet:
    fleet = Fleet(model, "metal")
    fleet.refresh()
    model.asked.clear()
    return fleet


def page_is(
    monkeypatch: pytest.MonkeyPatch, model: Model, index: int, made: Callable[[list[Node]], object]
) -> None:
    """Replace the page with this index."""
    real, pages = model.page, list[None]()

    def page(after: str | None) -> object:
        pages.append(None)
        return made(real(after)) if len(pages) - 1 == index else real(after)

    monkeypatch.setattr(model, "page", page)


def test_listing_reads_all_pages_and_checks_them(model: Model, fleet: Fleet) -> None:
    fleet.refresh()
    assert fleet.nodes == model.nodes()
    assert model.asked == [
        *(("check", 0), ("last", 1)),
        *(("page", 8), ("page", 8), ("page", 8), ("page", 1), ("page", 0)),
    ]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16])
def test_listing_of_any_length_is_complete(count: int) -> None:
    model = Model()
    model.create(count)
    fleet = Fleet(model, "metal")
    fleet.refresh()
    assert fleet.nodes == model.nodes()


@pytest.mark.parametrize("index", range(4))
def test_empty_page_is_not_the_end(
    model: Model, fleet: Fleet, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fleet.nodes
    page_is(monkeypatch, model, index, lambda _page: [])
    last = list(model.rows)[-1]
    with pytest.raises(BackendError, match=f"^driver metal: listing the nodes .*last node, {last}"):
        fleet.refresh()
    assert fleet.nodes is before


@pytest.mark.parametrize("index", range(1, 4))
def test_repeated_page_is_an_error(
    model: Model, fleet: Fleet, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fleet.nodes
    page_is(monkeypatch, model, index, lambda _page: list(before.values())[:8])
    first = next(iter(model.rows))
    with pytest.raises(BackendError, match=f"node {first} more than once"):
        fleet.refresh()
    assert fleet.nodes is before


@pytest.mark.parametrize("at", range(7))
def test_failed_request_leaves_the_fleet_unchanged(model: Model, fleet: Fleet, at: int) -> None:
    before = fleet.nodes
    model.create()
    model.fails_at = at
    with pytest.raises(BackendError, match="the lab has it fail"):
        fleet.refresh()
    assert fleet.nodes is before
    fleet.refresh()
    assert fleet.nodes == model.nodes()


@pytest.mark.parametrize("at", range(8))
def test_nodes_added_during_a_listing_cause_no_error(model: Model, fleet: Fleet, at: int) -> None:
    before = set(model.rows)
    model.meanwhile = [(at, lambda: model.create(3))]
    fleet.refresh()
    assert before <= fleet.nodes.keys()


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("which", [0, 3, 12, 20, 24])
def test_node_deleted_during_a_listing_hides_no_other(
    model: Model, fleet: Fleet, at: int, which: int
) -> None:
    uuid = list(model.rows)[which]
    model.meanwhile = [(at, lambda: model.delete(uuid))]
    fleet.refresh()
    assert set(model.rows) <= fleet.nodes.keys() <= {*model.rows, uuid}


@pytest.mark.parametrize(("which", "at"), [(7, 3), (15, 4), (23, 5), (24, 6)])
def test_last_node_of_a_page_deleted_before_the_next_page_is_an_error(
    model: Model, fleet: Fleet, which: int, at: int
) -> None:
    before = fleet.nodes
    uuid = list(model.rows)[which]  # the next page would begin after this node
    model.meanwhile = [(at, lambda: model.delete(uuid))]
    with pytest.raises(BackendError, match=f"node {uuid} could not be found"):
        fleet.refresh()
    assert fleet.nodes is before
    fleet.refresh()
    assert fleet.nodes == model.nodes()


def test_fleet_without_nodes_is_empty(model: Model, fleet: Fleet) -> None:
    model.rows.clear()
    fleet.refresh()
    assert fleet.nodes == {}


def test_first_node_may_be_added_during_the_listing() -> None:
    model = Model()
    model.meanwhile = [(2, model.create)]
    fleet = Fleet(model, "metal")
    fleet.refresh()
    assert fleet.nodes == model.nodes()


def test_listing_checks_first_whether_all_nodes_are_visible(model: Model) -> None:
    model.fails_at = 0
    with pytest.raises(BackendError):
        Fleet(model, "metal").refresh()
    assert model.asked == []
