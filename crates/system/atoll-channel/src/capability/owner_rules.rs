//! Tests an owner with real memory against rules that are written down a second time: for any rights on any bytes of any
//! memory, what can be copied, mapped or addressed, and that nothing can after revocation.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::ptr::NonNull;

use proptest::prelude::*;

use crate::capability::{
    Access, ExportError, Handle, Holder, Limits, Means, Memory, Owner, Place, Private, Refused, Rights,
    Shared, Sharing, Span, With,
};
use atoll_transport::Node;

const THIS: Holder = Holder { node: Node(0), process: 0 };
const PEER: Holder = Holder { node: Node(0), process: 1 };
const LENGTH: usize = 5000;

#[test]
fn an_owner_can_be_shared_by_threads() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Owner>();
    sent::<Access>();
}

/// Tries everything with a capability of the peer; `bytes` is the expected content of the memory.
fn try_all(owner: &mut Owner, handle: Handle, view: Option<(Span, Rights)>, kind: usize, bytes: &mut [u8]) {
    let none = (Span { offset: 0, length: 1 }, Rights::empty());
    let (span, rights) = view.unwrap_or(none);
    let (from, length) = (span.offset as usize, span.length as usize);

    let mut copy = vec![0; length];
    let copied = owner.copy_from(PEER, handle, 0, &mut copy);
    assert_eq!(copied.is_ok(), rights.contains(Rights::COPY_FROM));
    if copied.is_ok() {
        assert_eq!(copy, bytes[from..from + length]);
    }
    let copied = owner.copy_to(PEER, handle, span.length - 1, &[0xee]);
    assert_eq!(copied.is_ok(), rights.contains(Rights::COPY_TO));
    if copied.is_ok() {
        bytes[from + length - 1] = 0xee;
    }
    // A byte beyond either end is refused.
    assert!(owner.copy_from(PEER, handle, 1, &mut copy).is_err());
    assert!(owner.copy_to(PEER, handle, span.length, &[0]).is_err());
    assert!(owner.copy_to(PEER, handle, u64::MAX, &[0]).is_err());

    let whole = span == Span { offset: 0, length: LENGTH as u64 };
    let would = [Rights::READ, Rights::READ | Rights::WRITE, Rights::empty()][kind];
    let mapped = owner.export(PEER, handle, Means::Mapping);
    let may = whole && kind < 2 && rights.contains(would);
    assert_eq!(mapped.is_ok(), may, "{rights} on {span} of {kind}");
    if let Ok(export) = mapped {
        let file = export.file().map(|file| file.try_clone_to_owned().unwrap());
        let access = export.description.import(With { file, ..With::default() }).unwrap();
        assert_eq!(access.rights(), would);
        let mut seen = vec![0; LENGTH];
        access.read_at(0, &mut seen).unwrap();
        assert_eq!(seen, bytes);
        let written = access.write_at(0, &[0xdd]).is_ok();
        assert_eq!(written, kind == 1);
        if written {
            bytes[0] = 0xdd;
        }
    }
    let direct = rights & (Rights::READ | Rights::WRITE);
    match owner.export(PEER, handle, Means::Process) {
        Ok(export) => {
            assert!(!direct.is_empty());
            let description = export.description;
            assert_eq!((description.rights, description.length), (direct, span.length));
            assert!(matches!(description.place, Place::Process { .. }) && export.file.is_none());
        }
        Err(ExportError::Refused(Refused::Revoked)) => assert!(view.is_none()),
        Err(ExportError::Refused(Refused::Rights { .. })) => assert!(direct.is_empty()),
        Err(other) => panic!("{other}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn an_owner_does_what_the_rights_say_and_nothing_else(
        grants in proptest::collection::vec(
            (0..3usize, 0..32u8, prop_oneof![Just((0, LENGTH as u64)), (0..4000u64, 1..1000u64)]),
            1..8,
        ),
    ) {
        let mut owner = Owner::new(THIS, Limits::default()).unwrap();
        let mut block = vec![0u8; LENGTH];
        let base = NonNull::new(block.as_mut_ptr()).unwrap();
        // SAFETY: the block outlives the owner, and is used only through it.
        let private = unsafe { Private::new(base, LENGTH) };
        let roots = [
            owner.add(Memory::Shared(Shared::new(LENGTH, Sharing::Read).unwrap())).unwrap(),
            owner.add(Memory::Shared(Shared::new(LENGTH, Sharing::ReadWrite).unwrap())).unwrap(),
            owner.add(Memory::Private(private)).unwrap(),
        ];
        let mut bytes: Vec<Vec<u8>> = (0..3).map(|kind| vec![kind + 1; LENGTH]).collect();
        for (root, bytes) in roots.iter().zip(&bytes) {
            owner.copy_to(THIS, *root, 0, bytes).unwrap();
        }
        let mut given = Vec::new();
        for (kind, rights, (offset, length)) in grants {
            let (span, rights) = (Span { offset, length }, Rights::from_bits_truncate(rights));
            let handle = owner.grant(THIS, roots[kind], PEER, span, rights).unwrap();
            try_all(&mut owner, handle, Some((span, rights)), kind, &mut bytes[kind]);
            given.push((kind, handle));
        }
        for root in roots {
            for gone in owner.revoke(THIS, root).unwrap() {
                // A capability through which nothing was made accessible needs no more than revocation.
                if !gone.given.is_empty() {
                    let _ = owner.renew(&gone.memory);
                }
            }
        }
        for (kind, handle) in given {
            try_all(&mut owner, handle, None, kind, &mut bytes[kind]);
        }
        let mut seen = vec![0; LENGTH];
        for (root, bytes) in roots.iter().zip(&bytes) {
            owner.copy_from(THIS, *root, 0, &mut seen).unwrap();
            prop_assert_eq!(&seen, bytes);
        }
        drop(owner);
    }
}
