"""A store on a real ClickHouse server keeps the contract of stores."""

from tests.hub.store.contract import StoreContract
from tests.hub.store.cut_contract import CutContract


class TestServerStore(StoreContract):
    pass


class TestCutServerStore(CutContract):
    pass
