"""The page of shared memory in which the process of a driver instance reports its state."""

import os
import time
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from wharfinger.agent import shared_report
from wharfinger.agent.shared_report import ReportReader, ReportWriter
from wharfinger.agent.status import InstanceReport


@pytest.fixture
def page() -> Iterator[BinaryIO]:
    with shared_report.create() as page:
        yield page


@pytest.fixture
def reader(page: BinaryIO) -> ReportReader:
    return ReportReader(page.fileno())


@pytest.fixture
def writer(page: BinaryIO) -> ReportWriter:
    return ReportWriter(os.dup(page.fileno()))


def test_page_without_a_report_reads_as_an_empty_one(reader: ReportReader) -> None:
    assert reader.report() == InstanceReport()
    assert reader.call() == ("", None)


def test_report_that_is_published_is_read(reader: ReportReader, writer: ReportWriter) -> None:
    for problems in (("first",), ("second", "a longer one"), ()):
        writer.publish(InstanceReport(driver="ironic", problems=problems))

        assert reader.report() == InstanceReport(driver="ironic", problems=problems)


def test_report_that_is_half_written_leaves_the_previous_report(
    reader: ReportReader, writer: ReportWriter
) -> None:
    before = InstanceReport(driver="ironic")
    writer.publish(before)
    assert reader.report() == before

    page = writer._page
    shared_report._REPORT.pack_into(page, shared_report._REPORT_START, 10, 1)

    assert reader.report() == before


@pytest.mark.parametrize("length", [0, 5, 2**32 - 1])
def test_page_that_the_driver_overwrites_leaves_the_previous_report(
    reader: ReportReader, writer: ReportWriter, length: int
) -> None:
    before = InstanceReport(driver="ironic")
    writer.publish(before)
    assert reader.report() == before

    for start in range(0, len(writer._page), 4096):
        writer._page[start : start + 4096] = b"\xff" * 4096
    shared_report._REPORT.pack_into(writer._page, shared_report._REPORT_START, length, 7)

    assert reader.report() == before
    assert isinstance(reader.call()[0], str)


def test_call_in_progress_is_read_with_its_start(
    reader: ReportReader, writer: ReportWriter
) -> None:
    before = time.monotonic()
    with writer.calling("import"):
        with writer.calling("get_available_resource(" + "n" * 100 + ")"):
            operation, began = reader.call()

        assert operation == ("get_available_resource(" + "n" * 100)[:64]
        assert began is not None
        assert before <= began <= time.monotonic()
        assert reader.call()[0] == "import"
    assert reader.call() == ("", None)


def test_writer_closes_its_descriptor(page: BinaryIO) -> None:
    descriptor = os.dup(page.fileno())

    ReportWriter(descriptor)

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_sign_of_life_is_read_with_its_time(reader: ReportReader, writer: ReportWriter) -> None:
    assert reader.alive_at() is None
    before = time.monotonic()

    writer.alive()

    moment = reader.alive_at()
    assert moment is not None
    assert before <= moment <= time.monotonic()


@pytest.mark.parametrize("moment", [float("nan"), float("inf"), -float("inf"), -1.0, 1e300])
def test_impossible_time_is_read_as_long_ago(
    reader: ReportReader, writer: ReportWriter, moment: float
) -> None:
    shared_report._ALIVE.pack_into(writer._page, 0, moment)
    shared_report._CALL.pack_into(writer._page, shared_report._CALL_START, moment, b"a\x1bb")

    assert reader.alive_at() == 0.0
    assert reader.call() == ("a\\x1bb", 0.0)
