"""nova and the program write by turns for two hours of simulated time."""

from typing import TYPE_CHECKING

from tests.lab.beside_nova import HOST, Wharfinger, devices, users
from tests.lab.cycles import everything

if TYPE_CHECKING:
    from tests.lab.nova_services import Nova

CARD_1, CARD_2 = f"{HOST}_card_1", f"{HOST}_card_2"
FREE, RESERVED = (4, 0), (4, 4)
CARD = {"resources1:CUSTOM_CARD_UNIT": "1"}
NO_CHANGE = "cards: no change\n"
#: The default interval of the program's full cycles, in minutes.
FULL_CYCLE = 5
HOURS = 2


def test_two_hours_of_turns_end_without_a_fight_or_a_lost_reservation(
    nova: "Nova", cards: Wharfinger
) -> None:
    cards.reserve(CARD_1)
    before = everything()
    server = ""
    for minutes in range(FULL_CYCLE, HOURS * 60 + 1, FULL_CYCLE):
        if minutes == 30:
            server = nova.boot(CARD)
        if minutes == 60:
            nova.delete(server)
        if minutes == 90:
            cards.has_devices({"1": 4, "2": 4, "3": 4})
            assert f"+ {HOST}_card_3" in cards.sync()

        nova.pass_minutes(FULL_CYCLE)
        written = cards.sync()

        assert written == NO_CHANGE, minutes
        assert devices()[CARD_1] == RESERVED
        assert users(CARD_2) == ({server: 1} if 30 <= minutes < 60 else {})
        assert len(devices()) == (2 if minutes < 90 else 3)

    after = everything()
    assert after.pop(f"{HOST}_card_3")["inventories"] == {"CUSTOM_CARD_UNIT": FREE}
    assert after == before


def test_two_hours_of_turns_with_reinstallations_lose_no_reservation(
    nova: "Nova", cards: Wharfinger
) -> None:
    cards.reserve(CARD_1)
    for number in range(4):
        nova.pass_minutes(25)
        cards.sync()
        nova.stop_compute(HOST)
        nova.delete_service(HOST)
        cards.run("sync")  # the sync fails because the root is missing
        nova.start_compute(HOST, f"0c1c5a4e-0a3b-4f6c-9a0e-6f7c3c1c2d1{number}")
        nova.pass_minutes(5)

        cards.sync()

        assert devices() == {CARD_1: RESERVED, CARD_2: FREE}
    assert cards.sync() == NO_CHANGE
