import pytest

from tests.core.http2.conversation import Conversation


@pytest.fixture
def conversation() -> Conversation:
    return Conversation()
