//! Every backend through the one suite, and what each does besides.
#![allow(clippy::unwrap_used)]
use npumem_backend::{Backend, BackendError, Faults, Faulty, Host, Place, conformance};
use npumem_ir::{Bytes, SpaceId};

fn host() -> Host {
    Host::with_two_spaces(Bytes(256 << 20), Bytes(1 << 20)).unwrap()
}

#[test]
fn host_conforms() {
    conformance::check(&mut host()).unwrap();
}

#[test]
fn host_computes() {
    conformance::check_compute(&mut host()).unwrap();
}

#[test]
fn faulty_without_faults_conforms() {
    conformance::check(&mut Faulty::new(host(), Faults { delay: 3, ..Faults::default() })).unwrap();
}

#[test]
fn faulty_fails_at_each_call_and_the_backend_stays_usable() {
    let mut all = Faulty::new(host(), Faults::default());
    conformance::check(&mut all).unwrap();
    let calls = all.calls();
    assert!(calls > 40, "{calls}");
    for call in 1..=calls {
        let mut backend = Faulty::new(host(), Faults { fail_at: Some(call), ..Faults::default() });
        assert!(conformance::check(&mut backend).is_err(), "call {call} failed and nobody saw it");
        let region = backend.reserve(SpaceId::new(0), Bytes(1)).unwrap();
        backend.release(region).unwrap();
    }
}

#[test]
fn a_lost_write_is_seen_by_the_suite() {
    for lose in 1..4 {
        let mut backend = Faulty::new(host(), Faults { lose: Some(lose), ..Faults::default() });
        assert!(conformance::check(&mut backend).is_err(), "write {lose} was lost and nobody saw it");
    }
}

#[test]
fn reserved_addresses_cost_nothing_and_a_large_range_can_be_had() {
    let mut host = host();
    let region = host.reserve(SpaceId::new(0), Bytes(1 << 40)).unwrap();
    let far = Place { region, offset: (1 << 40) - (2 << 20) };
    host.commit(far, Bytes(2 << 20)).unwrap();
    host.write(far, b"far").unwrap();
    assert_eq!(host.committed(SpaceId::new(0)), Bytes(2 << 20));
    assert!(matches!(host.reserve(SpaceId::new(0), Bytes(u64::MAX)), Err(BackendError::BadRange { .. })));
}
