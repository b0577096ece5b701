from gateway.transports.timeouts import ReplyProgress, Timeouts

TIMES = Timeouts(write=30, rate=4096, message=900)
MIB = 2**20


def test_a_client_that_takes_nothing_is_too_slow_after_the_time_for_that() -> None:
    progress = ReplyProgress(MIB, 100)
    assert not progress.is_too_slow(MIB, 130, TIMES)
    assert progress.is_too_slow(MIB, 130.1, TIMES)


def test_a_client_that_takes_a_byte_now_and_then_is_too_slow() -> None:
    progress = ReplyProgress(MIB, 100)
    assert not progress.is_too_slow(MIB - 1, 129, TIMES)
    assert progress.is_too_slow(MIB - 2, 131, TIMES)


def test_a_client_that_keeps_the_rate_may_take_as_long_as_a_request() -> None:
    progress = ReplyProgress(10 * MIB, 0)
    assert not any(progress.is_too_slow(10 * MIB - at * 4096, at, TIMES) for at in range(901))
    assert progress.is_too_slow(10 * MIB - 901 * 4096, 901, TIMES)


def test_replies_that_join_do_not_take_back_what_was_read() -> None:
    progress = ReplyProgress(MIB, 0)
    assert not progress.is_too_slow(0, 29, TIMES)
    assert not progress.is_too_slow(5 * MIB, 31, TIMES)
    assert not progress.is_too_slow(5 * MIB - 1, 60, TIMES)


def test_seconds_in_which_nothing_could_be_taken_do_not_count() -> None:
    progress = ReplyProgress(MIB, 0)
    progress.excuse(100)
    assert not progress.is_too_slow(MIB, 130, TIMES)
    assert progress.is_too_slow(MIB, 131, TIMES)
