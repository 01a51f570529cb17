//! Tests with bytes that are no code, and files that are no objects: the analysis answers without a panic, in bounded work.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;

use atoll_code::{Code, Function, Handlers, Limits, Object, Processor, Segment, Slot, elf};
use proptest::prelude::*;

const LIMITS: Limits = Limits { instructions: 5_000, functions: 50, steps: 500_000 };

fn look(
    processor: Processor,
    text: &[u8],
    data: &[u8],
    at: u64,
    functions: Vec<Function<'_>>,
    slots: Vec<Slot<'_>>,
) {
    let object = Object {
        name: "random".to_string(),
        processor,
        base: 0x1000,
        end: 0x9000,
        segments: vec![
            Segment { address: 0x1000, bytes: text, executable: true },
            Segment { address: 0x8000, bytes: data, executable: false },
        ],
        slots,
        functions,
    };
    let code = Code::new(vec![object]).with_limits(LIMITS);
    let reach = code.reach(at);
    assert!(reach.instructions <= LIMITS.instructions);
    for finding in &reach.findings {
        assert!(!code.sentence(finding).is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn random_bytes(
        text in prop::collection::vec(any::<u8>(), 0..4096),
        data in prop::collection::vec(any::<u8>(), 0..256),
        at in 0u64..0x1200,
        parts in prop::collection::vec((0x1000u64..0x2000, any::<u16>(), 0x7f00u64..0x8100), 0..8),
        slots in prop::collection::vec((0x1000u64..0x9000, prop::option::of(any::<u64>())), 0..8),
    ) {
        let functions: Vec<Function> = parts.iter().map(|&(start, n, table)| Function { start, end: start + u64::from(n), name: None, handlers: Handlers::At(table) }).collect();
        let slots: Vec<Slot> = slots.iter().map(|&(address, target)| Slot { address, name: Some("f"), target }).collect();
        for processor in [Processor::X86_64, Processor::Aarch64] {
            look(processor, &text, &data, 0x1000 + at, functions.clone(), slots.clone());
        }
    }

    /// Real instructions in random order make more control flow than random bytes do.
    #[test]
    fn random_instructions(choices in prop::collection::vec((0usize..20, any::<i8>()), 0..1500)) {
        const PIECES: [&[u8]; 16] = [
            &[0x48, 0x8b, 0x07], &[0x85, 0xc0], &[0x83, 0xf8, 0x07], &[0x48, 0x63, 0x04, 0x82], &[0x48, 0x01, 0xd0],
            &[0xff, 0xe0], &[0xff, 0xd0], &[0xc3], &[0xf0, 0xff, 0x07], &[0x48, 0x8d, 0x15, 0, 0x70, 0, 0], &[0x89, 0x44, 0x24, 0x08],
            &[0x8b, 0x44, 0x24, 0x08], &[0x48, 0xff, 0xc0], &[0x48, 0x89, 0xc2], &[0x0f, 0xae, 0xf0], &[0xf3, 0x90],
        ];
        let mut text = Vec::new();
        for (choice, offset) in choices {
            match PIECES.get(choice) {
                Some(piece) => text.extend_from_slice(piece),
                None if choice == 16 => text.extend_from_slice(&[0xe8, offset as u8, if offset < 0 { 0xff } else { 0 }, if offset < 0 { 0xff } else { 0 }, if offset < 0 { 0xff } else { 0 }]),
                None if choice == 17 => text.extend_from_slice(&[0x77, offset as u8]),
                None if choice == 18 => text.extend_from_slice(&[0xeb, offset as u8]),
                None => text.extend_from_slice(&[0x75, offset as u8]),
            }
        }
        look(Processor::X86_64, &text, &[1, 2, 3, 4, 0xf0, 0xff, 0xff, 0xff], 0x1000, Vec::new(), Vec::new());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// The same for aarch64.
    #[test]
    fn random_instructions_of_arm(choices in prop::collection::vec((0usize..22, any::<i8>()), 0..1500)) {
        // Loads, tests, table jumps, calls, atomics, barriers, and additions that make addresses.
        const PIECES: [u32; 18] = [
            0xf940_0007, 0x7100_1c1f, 0xb860_5841, 0x3861_4800, 0x8b21_8400, 0xd61f_0020, 0xd63f_0000, 0xd65f_03c0, 0xb820_0041,
            0x9000_0001, 0x9100_0021, 0xb900_0fe0, 0xb940_0fe0, 0x9100_0400, 0xd503_3bbf, 0xd503_203f, 0xa9bf_7bfd, 0x9100_03fd,
        ];
        let mut text = Vec::new();
        for (choice, offset) in choices {
            let distance = i32::from(offset).cast_unsigned();
            let word = match PIECES.get(choice) {
                Some(piece) => *piece,
                None if choice == 18 => 0x9400_0000 | distance & 0x3ff_ffff,
                None if choice == 19 => 0x5400_0008 | (distance & 0x7_ffff) << 5,
                None if choice == 20 => 0x1400_0000 | distance & 0x3ff_ffff,
                None => 0xb400_0000 | (distance & 0x7_ffff) << 5,
            };
            text.extend_from_slice(&word.to_le_bytes());
        }
        look(Processor::Aarch64, &text, &[1, 2, 3, 4, 0xf0, 0xff, 0xff, 0xff], 0x1000, Vec::new(), Vec::new());
    }
}

/// A small program's file, mutated: whatever `elf` makes of it, nothing panics and nothing runs for ever.
#[test]
fn mutated_files() {
    if !common::installed("gcc") {
        atoll_skips::skip!("gcc is not installed: apt-get install gcc");
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snippets/plain.c");
    common::build("gcc", &["-O2", "-w", "-fopenmp"], &source, &out).unwrap();
    let bytes = std::fs::read(out).unwrap();
    proptest!(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) }, |(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..40), length in any::<prop::sample::Index>(), cut in any::<bool>())| {
        let mut changed = bytes.clone();
        for (index, value, early) in changes {
            let range = if early { 0x1000.min(changed.len()) } else { changed.len() };
            changed[index.index(range)] = value;
        }
        if cut {
            changed.truncate(length.index(changed.len()));
        }
        if let Ok(image) = elf::file("mutated", &changed, 0x5555_0000_0000) {
            let _ = image.soname();
            let code = Code::new(elf::link(vec![image])).with_limits(LIMITS);
            let starts: Vec<u64> = code.objects()[0].functions.iter().map(|f| f.start).take(20).collect();
            for start in starts {
                let _ = code.reach(start);
            }
        }
    });
}
