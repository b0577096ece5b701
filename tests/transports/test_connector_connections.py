"""Closing a connector closes every connection that has a socket."""

from gateway.transports.connector_connections import ConnectorConnections


class Connection:
    """Has a socket until the test reports that it is lost."""

    def __init__(self, *, fails: bool = False) -> None:
        self.is_aborted = False
        self._fails = fails

    def abort(self) -> None:
        if self._fails:
            raise ValueError("the fault")
        self.is_aborted = True


async def test_a_connection_that_is_opened_after_closing_is_aborted() -> None:
    connections: ConnectorConnections[Connection] = ConnectorConnections()
    connections.abort_all()
    late = Connection()
    connections.opened(late)
    assert late.is_aborted
    assert late in connections


async def test_all_others_are_closed_where_closing_one_fails() -> None:
    connections: ConnectorConnections[Connection] = ConnectorConnections()
    whole = [Connection() for _ in range(5)]
    for each in (*whole[:2], Connection(fails=True), *whole[2:]):
        connections.opened(each)
    connections.abort_all()
    assert all(each.is_aborted for each in whole)
