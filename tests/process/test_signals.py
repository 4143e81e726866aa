"""Signals wait where they have to, and then end what they should."""

import pickle
import signal
import threading

import pytest

from molgcn.process.signals import SignalsLater, Terminated, terminate


@pytest.fixture(autouse=True, params=[signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def number(request):
    """Return a signal, with the handlers of a command installed."""
    before = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: terminate}
    before = {number: signal.signal(number, handler) for number, handler in before.items()}
    yield request.param
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers():
    return signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)


END = (KeyboardInterrupt, Terminated)


def test_a_signal_waits_for_the_end(number):
    def held():
        with SignalsLater():
            signal.raise_signal(number)
            reached.append("the end")

    reached = []
    with pytest.raises(END):
        held()
    assert reached == ["the end"]


def test_without_one_the_handlers_are_as_before():
    before = handlers()
    with SignalsLater():
        assert handlers() != before
    assert handlers() == before
    with pytest.raises(ZeroDivisionError), SignalsLater():
        _ = 1 / 0
    assert handlers() == before


def test_a_second_one_does_not_wait(number):
    def held():
        with SignalsLater():
            signal.raise_signal(signal.SIGINT)
            reached.append("the first")
            signal.raise_signal(number)
            reached.append("the second")

    reached = []
    with pytest.raises(END):
        held()
    assert reached == ["the first"]


def test_now_is_when_what_came_before_happens(number):
    def held():
        with SignalsLater() as signals:
            signal.raise_signal(number)
            reached.append("now")
            with signals.now():
                reached.append("within")

    reached = []
    with pytest.raises(END):
        held()
    assert reached == ["now"]


def test_now_is_when_a_signal_does_not_wait(number):
    def held():
        with signals.now():
            assert handlers() == before
            signal.raise_signal(number)
            reached.append("within")

    reached = []
    before = handlers()
    with SignalsLater() as signals:
        with pytest.raises(END):
            held()
        assert signal.getsignal(signal.SIGINT) not in before
    assert not reached


def test_what_is_ignored_stays_ignored(number):
    signal.signal(number, signal.SIG_IGN)
    with SignalsLater():
        assert signal.getsignal(number) is signal.SIG_IGN
        signal.raise_signal(number)


def test_elsewhere_than_in_the_main_thread_signals_are_left_alone():
    def enter():
        with SignalsLater() as signals:
            seen.append(handlers())
            with signals.now():
                seen.append(handlers())

    seen = []
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [handlers()] * 2


def test_a_second_sigterm_ends_at_once():
    with pytest.raises(Terminated) as end:
        signal.raise_signal(signal.SIGTERM)
    assert end.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_it_travels_between_processes():
    assert pickle.loads(pickle.dumps(Terminated())).code == 143
