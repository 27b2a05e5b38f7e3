//! Every allocator through the one suite.
use npumem_allocator::conformance::{Profile, check_calls, check_contract, random_bytes};
use npumem_allocator::{
    Allocator, Buddy, Bump, Caching, DeviceModel, PageSource, Paged, PagedOptions, Settings, Slab, Tlsf,
};
use npumem_ir::Bytes;
use std::collections::BTreeSet;

/// Pages with a memory of which are mapped; refuses every `fail_every`-th map.
#[derive(Default)]
struct Pages {
    mapped: BTreeSet<u32>,
    calls: u32,
    fail_every: u32,
}

impl PageSource for Pages {
    fn map(&mut self, first: u32, count: u32) -> Result<(), String> {
        self.calls += 1;
        if self.fail_every > 0 && self.calls.is_multiple_of(self.fail_every) {
            return Err("made to fail".to_owned());
        }
        assert!(count > 0);
        for page in first..first + count {
            assert!(self.mapped.insert(page), "page {page} was mapped twice");
        }
        Ok(())
    }

    fn unmap(&mut self, first: u32, count: u32) {
        assert!(count > 0);
        for page in first..first + count {
            assert!(self.mapped.remove(&page), "page {page} was not mapped");
        }
    }
}

fn suite(seeds: u64, length: usize, profile: Profile, mut make: impl FnMut() -> Box<dyn Allocator>) {
    if let Err(flaw) = check_contract(&mut make, profile) {
        panic!("contract: {flaw}");
    }
    for seed in 0..seeds {
        let mut allocator = make();
        if let Err(flaw) = check_calls(allocator.as_mut(), profile, &random_bytes(seed, length)) {
            panic!("{} with seed {seed}: {flaw}", allocator.name());
        }
    }
}

#[test]
fn bump() {
    let capacity = 1 << 24;
    let profile = Profile { capacity: Some(capacity), largest: capacity, alignment: 1 << 12, recovers: true };
    suite(40, 20_000, profile, || Box::new(Bump::new(Bytes(capacity))));
}

#[test]
fn slab() {
    let profile = Profile { capacity: Some(4096 * 500), largest: 4096, alignment: 4096, recovers: true };
    suite(40, 20_000, profile, || Box::new(Slab::new(Bytes(4096), Bytes(4096 * 500 + 17))));
}

#[test]
fn buddy() {
    // 13 MiB: the tree has leaves past the capacity.
    let capacity = 13 << 20;
    let profile = Profile { capacity: Some(capacity), largest: 8 << 20, alignment: 1 << 20, recovers: true };
    suite(40, 20_000, profile, || Box::new(Buddy::new(Bytes(4096), Bytes(capacity))));
}

#[test]
fn tlsf() {
    for granule in [1, 32, 512] {
        let capacity = 5 << 20;
        let profile = Profile { capacity: Some(capacity), largest: capacity, alignment: 1 << 18, recovers: true };
        suite(20, 20_000, profile, || Box::new(Tlsf::new(Bytes(granule), Bytes(capacity))));
    }
}

#[test]
fn paged() {
    let capacity: u64 = 1 << 30;
    let addresses: u64 = 1 << 35;
    // It may use any address of its range, but no more memory than the limit.
    let profile = Profile { capacity: Some(addresses), largest: capacity, alignment: 1 << 20, recovers: true };
    for held in [0, 2, 64] {
        for slack in [0, 3] {
            let options = PagedOptions { limit: Some(Bytes(capacity)), addresses: Bytes(addresses), held, slack };
            suite(12, 20_000, profile, || Box::new(Paged::new(options, Pages::default())));
        }
    }
}

#[test]
fn paged_when_the_device_refuses_every_nth_time() {
    let capacity: u64 = 1 << 30;
    let profile = Profile { capacity: None, largest: capacity, alignment: 1 << 20, recovers: false };
    for fail_every in 1..12 {
        let options = PagedOptions { limit: Some(Bytes(capacity)), ..PagedOptions::default() };
        for seed in 0..4 {
            let mut paged = Paged::new(options, Pages { fail_every, ..Pages::default() });
            if let Err(flaw) = check_calls(&mut paged, profile, &random_bytes(seed, 8_000)) {
                panic!("every {fail_every}-th map fails, seed {seed}: {flaw}");
            }
        }
    }
}

#[test]
fn caching() {
    // A multiple of the pages of expandable segments (20 MiB), and a size that rounding to quarters keeps.
    let total: u64 = 1280 << 20;
    // Segments come at ever higher addresses, so only the memory is bounded.
    let profile = Profile { capacity: None, largest: total, alignment: 512, recovers: true };
    for config in [
        "",
        "expandable_segments:True",
        "max_split_size_mb:64,max_non_split_rounding_mb:30",
        "roundup_power2_divisions:4",
        "garbage_collection_threshold:0.6",
    ] {
        suite(6, 8_000, profile, || {
            let settings = Settings::parse(config).unwrap();
            let mut caching = Caching::new(settings, DeviceModel::new(Some(total), 0, 1 << 50));
            if config.starts_with("garbage") {
                caching.set_allowed(Some(Bytes(total)));
            }
            Box::new(caching)
        });
    }
}
