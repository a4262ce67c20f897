"""Recorded profiles, read back from the files that `kernelgen profile --json` wrote."""

from pathlib import Path

import msgspec

from kernelgen.errors import UserError
from kernelgen.profile.record import SCHEMA_VERSION, Profile
from kernelgen.report.json_report import decode_form


def read_profile(path: Path) -> Profile:
    """Read a profile; counters that an earlier kernelgen did not ask for are absent.

    Raises:
        UserError: it cannot be read, or is not the JSON of a profile that this version reads.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return decode_form(
            content, Profile, version=SCHEMA_VERSION, name="profile", remedy="profile again"
        )
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: not a profile: {error}; give what `kernelgen profile --json FILE` wrote"
        ) from error


def read_profiles(folder: Path) -> tuple[Profile, ...]:
    """Read the profiles `FOLDER/*.json`, in the order of their names.

    A folder that does not exist holds none.

    Raises:
        UserError: a file is not the JSON of a profile.
    """
    return tuple(read_profile(path) for path in sorted(folder.glob("*.json")))
