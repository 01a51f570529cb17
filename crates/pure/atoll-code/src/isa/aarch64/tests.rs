//! Words that an assembler wrote, with what they do.

use super::*;

const AT: u64 = 0x40_0000;

fn decoded(word: u32) -> Instruction {
    A64.decode(&word.to_le_bytes(), AT).expect("a known instruction")
}

fn x(number: u8) -> Registers {
    Register(number).bit()
}

fn d(number: u8) -> Registers {
    Register(VECTOR + number).bit()
}

#[test]
fn control_goes_where_the_words_say() {
    assert_eq!(decoded(0x1400_0002).flow, Flow::Jump(AT + 8));
    assert_eq!(decoded(0x97ff_ffff).flow, Flow::Call(AT - 4));
    // cbz x3, +8; tbnz w4, #5, -4; b.hi +8
    let tests = decoded(0xb400_0043);
    assert_eq!((tests.flow, tests.access.reads), (Flow::Branch(AT + 8), x(3)));
    assert_eq!(decoded(0x372f_ffe4).flow, Flow::Branch(AT - 4));
    let above = decoded(0x5400_0048);
    assert_eq!((above.flow, above.bound), (Flow::Branch(AT + 8), Some(Bound::Above)));
    assert_eq!(decoded(0xd65f_03c0).flow, Flow::Return);
    assert_eq!(decoded(0xd63f_0100).flow, Flow::IndirectCall);
    assert_eq!(decoded(0xd400_0001).flow, Flow::System);
    assert_eq!(decoded(0xd420_0000).flow, Flow::Stop);
}

#[test]
fn synchronisation_is_found_in_single_words() {
    let cases = [
        // ldaxr, stlxr, ldaddal, casal, swp
        (0xc85f_fc20, Some(Kind::AtomicUpdate)),
        (0xc802_fc20, Some(Kind::AtomicUpdate)),
        (0xf8e0_0041, Some(Kind::AtomicUpdate)),
        (0xc8e0_fc41, Some(Kind::AtomicUpdate)),
        (0xf820_8041, Some(Kind::AtomicUpdate)),
        // ldar, stlr, ldapr, stlur, dmb ish, isb
        (0xc8df_fc20, Some(Kind::Fence)),
        (0xc89f_fc20, Some(Kind::Fence)),
        (0xf8bf_c020, Some(Kind::Fence)),
        (0xd900_8020, Some(Kind::Fence)),
        (0xd503_3bbf, Some(Kind::Fence)),
        (0xd503_3fdf, Some(Kind::Fence)),
        // yield, wfe, nop, paciasp, bti c
        (0xd503_203f, Some(Kind::Wait)),
        (0xd503_205f, Some(Kind::Wait)),
        (0xd503_201f, None),
        (0xd503_233f, None),
        (0xd503_245f, None),
    ];
    for (word, kind) in cases {
        assert_eq!(decoded(word).synchronises, kind, "{word:#x}");
    }
}

#[test]
fn what_is_not_known_to_be_harmless_is_not_decoded() {
    // ld1w {z0.s}, p0/z, [x0]; dc zva, x0; irg x0, x0; msr tpidr_el0, x0; nothing.
    for word in [0xa540_a000_u32, 0xd50b_7420, 0x9ac0_1000, 0xd51b_d040, 0xffff_ffff] {
        assert!(A64.decode(&word.to_le_bytes(), AT).is_none(), "{word:#x}");
    }
    assert!(A64.decode(&[0x1f, 0x20, 0x03], AT).is_none(), "cut off");
}

#[test]
fn loads_and_stores_have_their_registers_and_places() {
    // ldr x1, [x2, #16]
    let load = decoded(0xf940_0841);
    assert_eq!((load.access.reads, load.access.writes, load.access.loads), (x(2), x(1), true));
    assert_eq!((load.displacement(), load.op), (16, Op::Move));
    // str x1, [x2], #8: the old value addresses, and the base moves.
    let store = decoded(0xf800_8441);
    assert_eq!((store.access.reads, store.access.writes), (x(1) | x(2), x(2)));
    assert!(store.access.stores && store.writes_memory && store.displacement() == 0);
    // ldrb w1, [x0, w1, uxtw]
    let entry = decoded(0x3861_4801);
    assert_eq!((entry.access.reads, entry.op), (x(0) | x(1), Op::MovePart));
    // ldp d8, d9, [sp, #16]; stp x29, x30, [sp, #-32]!
    let pair = decoded(0x6d41_27e8);
    assert_eq!((pair.access.writes, pair.displacement()), (d(8) | d(9), 16));
    let prologue = decoded(0xa9be_7bfd);
    assert!(!prologue.access.stores && prologue.access.writes == 0 && prologue.taken.is_none());
    // A pair is another place than each of its words: ldp x1, x2, [x0] and str x1, [x0].
    let (both, one) = (decoded(0xa940_0801), decoded(0xf900_0001));
    assert_ne!(both.memory.map(|m| m.space), one.memory.map(|m| m.space));
}

#[test]
fn values_and_addresses_are_computed() {
    // adrp x0, +1 page; add x0, x0, #0x123; mov x1, #0x12340000; mov w1, #-1
    assert_eq!(decoded(0xb000_0000).op, Op::Number(AT + 0x1000));
    let sum = decoded(0x9104_8c00);
    assert_eq!((sum.op, sum.base(), sum.displacement()), (Op::Address, Register(0), 0x123));
    assert_eq!(decoded(0xd2a2_4681).op, Op::Number(0x1234_0000));
    assert_eq!(decoded(0x1280_0001).op, Op::Number(0xffff_ffff));
    // cmp w0, #7; and x1, x2, #0xff; mov x29, sp; add x0, sp, #8
    assert_eq!(decoded(0x7100_1c1f).op, Op::Compare(Operand::Register(Register(0)), Some(7)));
    assert_eq!(decoded(0x9240_1c41).op, Op::And(Operand::Register(Register(2)), Some(0xff)));
    assert_eq!(decoded(0x9100_03fd).taken, Some((Register::STACK, 0)));
    assert_eq!(decoded(0x9100_23e0).taken, Some((Register::STACK, 8)));
    // add x1, x0, w1, sxtb #2
    let target = Operand::Part { register: Register(1), bytes: 1, signed: true, shift: 2 };
    assert_eq!(decoded(0x8b21_8801).op, Op::Add(Operand::Register(Register(0)), target));
}

#[test]
fn numbers_move_between_kinds_of_registers() {
    // scvtf d0, w1; fmov x0, d1; fcmp d0, d1; fadd d0, d1, d2
    assert_eq!((decoded(0x1e62_0020).access.reads, decoded(0x1e62_0020).access.writes), (x(1), d(0)));
    assert_eq!((decoded(0x9e66_0020).access.reads, decoded(0x9e66_0020).access.writes), (d(1), x(0)));
    assert_eq!(
        decoded(0x1e61_2000).access,
        Access { reads: d(0) | d(1), writes: FLAGS, ..Access::default() }
    );
    assert_eq!(decoded(0x1e62_2820).access.reads, d(1) | d(2));
    // fmla v0.2d, v1.2d, v2.2d adds to what is there.
    assert!(decoded(0x4e62_cc20).opaque);
}

#[test]
fn stubs_lead_to_their_slots() {
    // adrp x16, +1 page; ldr x17, [x16, #0x10]; add x16, x16, #0x10; br x17
    let words = [0xb000_0010_u32, 0xf940_0a11, 0x9100_4210, 0xd61f_0220];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(A64.stub(&bytes, AT), Some(AT + 0x1010));
    assert_eq!(A64.stub(&bytes[4..], AT), None);
}
