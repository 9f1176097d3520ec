"""Many threads that write to one database, also beside the embedded Placement, lose nothing."""

from concurrent.futures import ThreadPoolExecutor

from tests.functional.db import elsewhere
from tests.functional.db.databases import Place
from tests.lab import samples
from tests.lab.placement import PlacementFixture
from wharfinger.objects import ComputeNode, ComputeNodeList, Service, ServiceList
from wharfinger.providers import Inventory

THREADS = 8
TIMES = 10


def test_threads_write_beside_the_embedded_placement(
    file: Place, placement: PlacementFixture
) -> None:
    context, client = file.open_as_our_own(), placement.client

    def work(number: int) -> None:
        for name in range(number * TIMES, (number + 1) * TIMES):
            node = samples.node(context, name)
            node.create()
            made = client.create_provider(node.uuid, node.hypervisor_hostname, None)
            generation = client.set_traits(made.uuid, made.generation, ["OWNER_NOVA"])
            node.vcpus = name + 1
            node.save()
            client.set_inventories(made.uuid, generation, {"VCPU": Inventory(total=node.vcpus)})
            read = ComputeNode.get_by_uuid(context, node.uuid)
            live = client.get_inventories(node.uuid)
            assert live.inventories["VCPU"].total == read.vcpus == name + 1

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))

    nodes = {node.uuid: node.vcpus for node in ComputeNodeList.get_by_filters(context)}
    providers = {one.uuid for one in client.list_providers(required=("OWNER_NOVA",))}
    assert sorted(nodes.values()) == list(range(1, THREADS * TIMES + 1))
    assert providers == nodes.keys()


def test_lists_saved_in_any_order_do_not_wait_for_each_other(place: Place) -> None:
    place.upgrade()
    context = place.open()
    ServiceList(
        context, objects=[samples.service(context, number) for number in range(20)]
    ).create()

    def work(number: int) -> None:
        for _ in range(TIMES):
            services = list(ServiceList.get_by_filters(context))
            mine = services[::-1] if number % 2 else services
            elsewhere.save_or_not(ServiceList(context, objects=mine), str(number))
            services[number].report()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))

    saved = ServiceList.get_by_filters(context)
    assert {one.disabled_reason for one in saved} <= {str(number) for number in range(THREADS)}
    assert len({one.disabled_reason for one in saved}) == 1
    assert [one.report_count for one in saved] == [TIMES] * THREADS + [0] * 12
    assert len({one.revision for one in saved}) == 1
    assert Service.get_by_uuid(context, saved[0].uuid).revision > 1
