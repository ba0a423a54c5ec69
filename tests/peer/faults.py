"""Faults: the status of a reply or a goodbye, by number, as docs/spec/protocol.md has them."""

FAULTS = dict(enumerate((
    'NotFound', 'Exists', 'NotDirectory', 'IsDirectory', 'NotEmpty', 'AccessDenied', 'NotPermitted',
    'NoSpace', 'QuotaExceeded', 'TooBig', 'TooManyLinks', 'Invalid', 'Stale', 'ReadOnly',
    'CrossVolume', 'NoXattr', 'XattrTooBig', 'Locked', 'Deadlock', 'Cancelled', 'Damaged', 'Medium',
    'Unsupported', 'Busy', 'ChainAborted', 'GroupsNeeded', 'Expired', 'NoVolume', 'NothingThere',
    'NoCredential', 'NameTooLong', 'NotDelegated', 'Offline', 'Conflict', 'CellAway', 'NoPrincipal',
    'TokenExpired', 'Fenced', 'TokenRefused', 'ShareConflict', 'KeyConflict',
    'LockBroken'), start=1))
NUMBERS = {name: number for number, name in FAULTS.items()}
