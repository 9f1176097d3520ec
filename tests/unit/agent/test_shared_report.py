"""Page of memory in which the process of a driver instance shows what it does."""

import os
import time
from collections.abc import Iterator

import pytest

from wharfinger.agent import shared_report
from wharfinger.agent.shared_report import ReportReader, ReportWriter
from wharfinger.agent.status import InstanceReport


@pytest.fixture
def reader() -> Iterator[ReportReader]:
    reader = ReportReader(shared_report.create())
    yield reader
    reader.close()


@pytest.fixture
def writer(reader: ReportReader) -> ReportWriter:
    return ReportWriter(os.dup(reader.descriptor))


def test_page_without_a_report_reads_as_an_empty_one(reader: ReportReader) -> None:
    assert reader.report() == InstanceReport()
    assert reader.call() == ("", None)


def test_report_that_is_published_is_read(reader: ReportReader, writer: ReportWriter) -> None:
    for problems in (("first",), ("second", "a longer one"), ()):
        writer.publish(InstanceReport(driver="ironic", problems=problems))

        assert reader.report() == InstanceReport(driver="ironic", problems=problems)


def test_report_that_is_half_written_leaves_the_one_before(
    reader: ReportReader, writer: ReportWriter
) -> None:
    before = InstanceReport(driver="ironic")
    writer.publish(before)
    assert reader.report() == before

    page = writer._page
    shared_report._REPORT.pack_into(page, shared_report._CALL.size, 10, 1)

    assert reader.report() == before


@pytest.mark.parametrize("length", [0, 5, 2**32 - 1])
def test_page_that_the_driver_overwrites_leaves_the_report_before(
    reader: ReportReader, writer: ReportWriter, length: int
) -> None:
    before = InstanceReport(driver="ironic")
    writer.publish(before)
    assert reader.report() == before

    for start in range(0, len(writer._page), 4096):
        writer._page[start : start + 4096] = b"\xff" * 4096
    shared_report._REPORT.pack_into(writer._page, shared_report._CALL.size, length, 7)

    assert reader.report() == before
    assert isinstance(reader.call()[0], str)


def test_call_in_progress_is_read_with_its_begin(
    reader: ReportReader, writer: ReportWriter
) -> None:
    before = time.monotonic()
    writer.began("import")
    writer.began("get_available_resource(" + "n" * 100 + ")")

    operation, began = reader.call()

    assert operation == ("get_available_resource(" + "n" * 100)[:64]
    assert began is not None
    assert before <= began <= time.monotonic()
    writer.ended()
    assert reader.call()[0] == "import"
    writer.ended()
    assert reader.call() == ("", None)


def test_writer_closes_its_descriptor(reader: ReportReader) -> None:
    descriptor = os.dup(reader.descriptor)

    ReportWriter(descriptor)

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
