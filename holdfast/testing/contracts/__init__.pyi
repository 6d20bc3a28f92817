from holdfast.testing.contracts.history import HistoryContract as HistoryContract
