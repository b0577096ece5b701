"""`make release`: builds all parts into a folder, and checks each."""

import argparse
import shutil
import sys
from pathlib import Path

from deploy.release import checks, parts
from deploy.release.commands import ReleaseError


def main() -> None:
    """Build and check; end with 1 and the reason if a part fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=Path("dist"), help="the folder, which is emptied first")
    folder: Path = parser.parse_args().to.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        source, wheel = parts.archives(folder)
        files = [source, wheel, *parts.chart(folder), *parts.image(folder), *parts.bill_of_materials(folder, wheel)]
        parts.checksums(folder, files)
        checks.check(folder)
    except ReleaseError as error:
        sys.exit(str(error))
    for each in sorted(folder.iterdir()):
        print(f"{each.stat().st_size:>12,}  {each.name}")


if __name__ == "__main__":
    main()
