"""The tables."""

from sqlalchemy import LargeBinary, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """The base of all models."""


class ProviderRecord(Base):
    """What a driver instance remembers of one resource provider, as a JSON document."""

    __tablename__ = "provider_records"

    instance: Mapped[str] = mapped_column(String(64), primary_key=True)
    uuid: Mapped[str] = mapped_column(String(36), primary_key=True)
    document: Mapped[bytes] = mapped_column(LargeBinary)
