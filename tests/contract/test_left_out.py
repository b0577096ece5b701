"""Contract tests are never skipped: a request that a protocol cannot express is not a case, but is counted by
reason."""

from tests.contract.cases import FILE, collected, left_out


def test_the_file_tells_which_cases_are_left_out_and_why() -> None:
    assert FILE.read_text("utf-8") == left_out(), "`make matrix` writes it anew"


def test_every_test_has_cases() -> None:
    assert [test for test, cases in collected().items() if not cases.kept] == []


def test_no_test_of_the_contract_is_skipped() -> None:
    skipping = [file.name for file in FILE.parent.rglob("*.py") if "pytest." + "skip" in file.read_text("utf-8")]
    assert skipping == []
