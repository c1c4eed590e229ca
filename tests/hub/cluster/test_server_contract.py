"""A store on a real ClickHouse server keeps the contract of stores."""

from stepscope.testing.cuts import CutContract
from stepscope.testing.stores import StoreContract


class TestServerStore(StoreContract):
    pass


class TestCutServerStore(CutContract):
    pass
