//! Messages about standbys at random.

use proptest::collection::vec;
use proptest::prelude::*;
use types::*;

use super::{bytes, server_id, volume_id};

fn place() -> impl Strategy<Value = FeedPlace> {
    any::<(u64, u64)>().prop_map(|(feed, position)| FeedPlace { feed, position })
}

fn origin() -> impl Strategy<Value = ReplyAddress> {
    any::<(u64, u32, u64)>().prop_map(|(session, slot, request)| ReplyAddress {
        session: SessionId(session),
        slot,
        request,
    })
}

fn follow() -> impl Strategy<Value = Follow> {
    (volume_id(), server_id(), place(), any::<[u64; 3]>(), 0..=(1_u32 << 20)).prop_map(
        |(id, standby, applied, [base, synced, heard], bytes_max)| Follow {
            id,
            standby,
            base,
            applied,
            synced,
            heard,
            bytes_max,
        },
    )
}

pub(super) fn calls() -> impl Strategy<Value = VolumeCall> {
    prop_oneof![
        (any::<u32>(), volume_id()).prop_map(|(partition, tree)| VolumeCall::StandBy {
            partition: PartitionNo(partition),
            tree
        }),
        (any::<u32>(), any::<bool>()).prop_map(|(partition, raise)| VolumeCall::Format {
            partition: PartitionNo(partition),
            raise
        }),
        any::<u32>().prop_map(|partition| VolumeCall::Trust { partition: PartitionNo(partition) }),
        (any::<u32>(), volume_id(), any::<u32>()).prop_map(|(partition, after, max)| {
            VolumeCall::Loads { partition: PartitionNo(partition), after, max }
        }),
        (volume_id(), server_id()).prop_map(|(id, standby)| VolumeCall::Feed { id, standby }),
        follow().prop_map(|follow| VolumeCall::Follow(Box::new(follow))),
        volume_id().prop_map(|id| VolumeCall::Standbys { id }),
        (volume_id(), any::<bool>()).prop_map(|(id, force)| VolumeCall::FailOver { id, force }),
        (volume_id(), origin()).prop_map(|(id, origin)| VolumeCall::Inherit { id, origin }),
    ]
}

fn standby() -> impl Strategy<Value = StandbyInfo> {
    (server_id(), any::<[bool; 2]>(), any::<[u64; 4]>()).prop_map(
        |(server, [is_sync, in_step], [behind, behind_bytes, lag_millis, heard_millis])| {
            StandbyInfo { server, is_sync, in_step, behind, behind_bytes, lag_millis, heard_millis }
        },
    )
}

pub(super) fn answers() -> impl Strategy<Value = Answer> {
    prop_oneof![
        (place(), volume_id(), any::<u64>())
            .prop_map(|(place, base, epoch)| Answer::Feed(FeedStart { place, base, epoch })),
        vec(standby(), 0..4).prop_map(Answer::Standbys),
        (origin(), bytes(2000))
            .prop_map(|(origin, answer)| Answer::Inherited(Inherited { origin, answer })),
    ]
}
