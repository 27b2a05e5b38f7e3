//! The figures of the field on one machine: DRAM, one SRAM, an array with accumulators.

use crate::tiling::{Slots, io_bound, parse, two_level};

/// Spec, capacity in KiB, limit, then the best known traffic without second slots, with them for inputs, for all.
const KNOWN: [(&str, u64, u128, [u128; 3]); 18] = [
    ("matmul m=4096 n=4096 k=4096 a=f16 b=f16 c=f16", 512, 535_822_336, [603_979_776, 603_979_776, 805_306_368]),
    ("matmul m=4096 n=4096 k=4096 a=f16 b=f16 c=f16", 256, 758_725_837, [805_306_368, 805_306_368, 1_140_850_688]),
    ("matmul m=4096 n=4096 k=4096 a=f16 b=f16 c=f16", 64, 1_518_369_178, [1_577_058_304, 1_577_058_304, 2_214_592_512]),
    ("matmul m=1024 n=1024 k=1024 a=i8 b=i8 c=i8", 512, 3_145_728, [5_242_880, 5_242_880, 6_291_456]),
    ("matmul m=1024 n=1024 k=1024 a=i8 b=i8 c=i8", 256, 3_670_016, [6_291_456, 6_291_456, 7_340_032]),
    ("matmul m=1024 n=1024 k=1024 a=i8 b=i8 c=i8", 64, 8_257_536, [10_485_760, 10_485_760, 13_631_488]),
    ("conv c=64 size=56x56 k=64 kernel=3x3 pad=1 in=i8", 512, 438_272, [438_272, 438_272, 438_272]),
    ("conv c=64 size=56x56 k=64 kernel=3x3 pad=1 in=i8", 64, 438_272, [491_008, 563_456, 702_464]),
    ("conv c=64 size=56x56 k=64 kernel=3x3 pad=1 in=i8", 16, 569_344, [946_176, 946_176, 1_221_632]),
    ("conv c=64 size=56x56 k=256 kernel=1x1 in=i8", 512, 1_019_904, [1_019_904, 1_019_904, 1_019_904]),
    ("conv c=64 size=56x56 k=256 kernel=1x1 in=i8", 64, 1_019_904, [1_019_904, 1_019_904, 1_019_904]),
    ("conv c=64 size=56x56 k=256 kernel=1x1 in=i8", 16, 1_019_904, [1_220_608, 1_421_312, 1_421_312]),
    ("conv c=3 size=224x224 k=64 kernel=7x7 stride=2 pad=3 in=i8", 512, 962_752, [962_752, 962_752, 962_752]),
    ("conv c=3 size=224x224 k=64 kernel=7x7 stride=2 pad=3 in=i8", 64, 962_752, [987_172, 994_342, 1_005_697]),
    ("conv c=3 size=224x224 k=64 kernel=7x7 stride=2 pad=3 in=i8", 16, 962_752, [1_054_117, 1_242_160, 1_242_160]),
    ("conv c=256 size=14x14 k=256 kernel=3x3 pad=1 in=i8", 512, 690_176, [690_176, 690_176, 690_176]),
    ("conv c=256 size=14x14 k=256 kernel=3x3 pad=1 in=i8", 64, 690_176, [690_176, 690_176, 740_352]),
    ("conv c=256 size=14x14 k=256 kernel=3x3 pad=1 in=i8", 16, 690_176, [840_704, 840_704, 991_232]),
];

#[test]
fn every_figure_of_the_field_is_reached_or_beaten() {
    for (spec, kib, limit, known) in KNOWN {
        let operator = parse(spec).unwrap();
        let bound = io_bound(&operator, kib << 10);
        assert!(bound.bytes <= limit + 2, "{spec} at {kib} KiB: bound {} over the known {limit}", bound.bytes);
        for (slots, best) in [Slots::Single, Slots::Inputs, Slots::All].into_iter().zip(known) {
            let found = two_level(&operator, kib << 10, slots).unwrap();
            let traffic = found.traffic();
            println!(
                "{spec} {kib}K {}: {traffic} (known {best}, bound {}) tiles {:?} order {:?} slots {:?} taken {:?} work {} {}",
                slots.word(),
                bound.bytes,
                found.tiles,
                found.order,
                found.slots,
                found.taken,
                found.work,
                found.proven
            );
            assert!(traffic <= best, "{spec} at {kib} KiB, {}: {traffic} is more than {best}", slots.word());
            assert!(traffic >= bound.bytes, "{spec}: {traffic} is below the bound {}", bound.bytes);
            assert!(found.taken[0] <= kib << 10);
            assert!(found.proven);
        }
    }
}
