//! Samples about standbys.

use bytes::Bytes;
use types::*;

const SERVER: ServerId = ServerId(0x0506);
const PLACE: FeedPlace = FeedPlace { feed: 0x0708, position: 9 };
const ORIGIN: ReplyAddress = ReplyAddress { session: SessionId(0x0b), slot: 2, request: 12 };

pub(super) fn calls() -> Vec<(&'static str, Call)> {
    let volume = |name, call| (name, Call::Volume(call));
    let id = VolumeId(0x0102);
    let follow = Follow {
        id,
        standby: SERVER,
        base: 3,
        applied: PLACE,
        synced: 8,
        heard: 4,
        bytes_max: 1 << 20,
    };
    vec![
        volume("volume-stand-by", VolumeCall::StandBy { partition: PartitionNo(1), tree: id }),
        volume("volume-format", VolumeCall::Format { partition: PartitionNo(1), raise: true }),
        volume("volume-trust", VolumeCall::Trust { partition: PartitionNo(1) }),
        volume(
            "volume-loads",
            VolumeCall::Loads { partition: PartitionNo(1), after: VolumeId(7), max: 2000 },
        ),
        volume("volume-feed", VolumeCall::Feed { id, standby: SERVER }),
        volume("volume-follow", VolumeCall::Follow(Box::new(follow))),
        volume("volume-standbys", VolumeCall::Standbys { id }),
        volume("volume-fail-over", VolumeCall::FailOver { id, force: true }),
        volume("volume-inherit", VolumeCall::Inherit { id, origin: ORIGIN }),
    ]
}

pub(super) fn answers() -> Vec<(&'static str, Answer)> {
    let standby = StandbyInfo {
        server: SERVER,
        is_sync: true,
        in_step: false,
        behind: 1,
        behind_bytes: 2,
        lag_millis: 3,
        heard_millis: 4,
    };
    let answer = Bytes::from_static(b"record");
    vec![
        ("feed", Answer::Feed(FeedStart { place: PLACE, base: VolumeId(0x0103), epoch: 3 })),
        ("standbys", Answer::Standbys(vec![standby])),
        ("inherited", Answer::Inherited(Inherited { origin: ORIGIN, answer })),
    ]
}
