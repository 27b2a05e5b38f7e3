//! One suite that every backend passes.

use crate::backend::{Backend, BackendError, Place, RegionId};
use npumem_ir::{Bytes, SpaceId};

mod kernels;

pub use kernels::check_compute;

/// Checks the rules of [`Backend`] on a new backend whose first space holds at least 64 pages.
///
/// # Errors
/// The first rule that is broken, in words.
pub fn check(backend: &mut dyn Backend) -> Result<(), String> {
    for index in 0..backend.spaces().len() {
        let space = SpaceId::new(index);
        commit_and_contents(backend, space).map_err(|flaw| format!("space {index}: {flaw}"))?;
        ranges(backend, space).map_err(|flaw| format!("space {index}: {flaw}"))?;
        capacity(backend, space).map_err(|flaw| format!("space {index}: {flaw}"))?;
    }
    copies(backend)?;
    match backend.reserve(SpaceId::new(1000), Bytes(1)) {
        Err(BackendError::NoSpace(1000)) => Ok(()),
        other => Err(format!("a space that is not there gave {other:?}")),
    }
}

fn ok<T>(result: Result<T, BackendError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

fn refused(result: Result<(), BackendError>, what: &str) -> Result<(), String> {
    match result {
        Err(BackendError::BadRange { .. } | BackendError::NoRegion(_)) => Ok(()),
        other => Err(format!("{what} gave {other:?}")),
    }
}

fn page(backend: &dyn Backend, space: SpaceId) -> u64 {
    backend.spaces()[space.index()].page.get()
}

fn commit_and_contents(backend: &mut dyn Backend, space: SpaceId) -> Result<(), String> {
    let page = page(backend, space);
    let region = ok(backend.reserve(space, Bytes(8 * page)))?;
    if backend.committed(space) != Bytes::ZERO {
        return Err("reserved addresses count as memory".to_owned());
    }
    let place = Place { region, offset: 2 * page };
    ok(backend.commit(place, Bytes(2 * page)))?;
    if backend.committed(space) != Bytes(2 * page) {
        return Err(format!("two pages committed, {} counted", backend.committed(space)));
    }
    let mut bytes = vec![1; 64];
    ok(backend.read(Place { offset: 3 * page - 32, ..place }, &mut bytes))?;
    if bytes.iter().any(|byte| *byte != 0) {
        return Err("fresh memory is not zero".to_owned());
    }
    let pattern: Vec<u8> = (0..64).collect();
    ok(backend.write(Place { offset: 3 * page - 32, ..place }, &pattern))?;
    ok(backend.read(Place { offset: 3 * page - 32, ..place }, &mut bytes))?;
    if bytes != pattern {
        return Err("what was written across two pages does not come back".to_owned());
    }
    ok(backend.decommit(place, Bytes(2 * page)))?;
    ok(backend.commit(place, Bytes(2 * page)))?;
    ok(backend.read(Place { offset: 3 * page - 32, ..place }, &mut bytes))?;
    if bytes.iter().any(|byte| *byte != 0) {
        return Err("memory that went back and came again is not zero".to_owned());
    }
    ok(backend.release(region))?;
    if backend.committed(space) != Bytes::ZERO {
        return Err("a released region keeps memory".to_owned());
    }
    Ok(())
}

fn ranges(backend: &mut dyn Backend, space: SpaceId) -> Result<(), String> {
    let page = page(backend, space);
    let region = ok(backend.reserve(space, Bytes(4 * page)))?;
    let at = |offset| Place { region, offset };
    ok(backend.commit(at(page), Bytes(page)))?;
    let mut byte = [0];
    refused(backend.read(at(0), &mut byte), "a read of what is not committed")?;
    refused(backend.write(at(2 * page - 1), &[0, 0]), "a write past what is committed")?;
    refused(backend.write(at(4 * page), &[0]), "a write past the end")?;
    refused(backend.read(at(u64::MAX), &mut byte), "a read at the end of all numbers")?;
    refused(backend.commit(at(0), Bytes(2 * page)), "a commit over committed pages")?;
    refused(backend.commit(at(2 * page + 1), Bytes(page)), "a commit at half a page")?;
    refused(backend.commit(at(3 * page), Bytes(2 * page)), "a commit past the end")?;
    refused(backend.commit(at(0), Bytes::ZERO), "a commit of nothing")?;
    refused(backend.decommit(at(0), Bytes(2 * page)), "a decommit of what is not committed")?;
    if backend.committed(space) != Bytes(page) {
        return Err("a refused call changed what is committed".to_owned());
    }
    ok(backend.release(region))?;
    refused(backend.release(region), "a second release")?;
    refused(backend.read(at(page), &mut byte), "a read of a released region")?;
    refused(backend.commit(Place { region: RegionId(99), offset: 0 }, Bytes(page)), "a region that never was")
}

fn capacity(backend: &mut dyn Backend, space: SpaceId) -> Result<(), String> {
    let page = page(backend, space);
    let capacity = backend.spaces()[space.index()].capacity.get() / page * page;
    let region = ok(backend.reserve(space, Bytes(capacity + page)))?;
    ok(backend.commit(Place { region, offset: 0 }, Bytes(capacity)))?;
    match backend.commit(Place { region, offset: capacity }, Bytes(page)) {
        Err(BackendError::Full { committed, .. }) if committed == Bytes(capacity) => {}
        other => return Err(format!("one page more than the capacity gave {other:?}")),
    }
    ok(backend.decommit(Place { region, offset: 0 }, Bytes(page)))?;
    ok(backend.commit(Place { region, offset: capacity }, Bytes(page)))?;
    ok(backend.release(region))
}

fn copies(backend: &mut dyn Backend) -> Result<(), String> {
    let from_space = SpaceId::new(0);
    let to_space = SpaceId::new(backend.spaces().len() - 1);
    let bytes = page(backend, from_space).min(page(backend, to_space));
    let from = Place { region: ok(backend.reserve(from_space, Bytes(bytes)))?, offset: 0 };
    let to = Place { region: ok(backend.reserve(to_space, Bytes(bytes)))?, offset: 0 };
    let (from_page, to_page) = (page(backend, from_space), page(backend, to_space));
    ok(backend.commit(from, Bytes(from_page)))?;
    ok(backend.commit(to, Bytes(to_page)))?;
    let pattern: Vec<u8> = (0..bytes).map(|index| (index * 7) as u8).collect();
    ok(backend.write(from, &pattern))?;
    let half = bytes / 2;
    let first = ok(backend.copy(from, to, Bytes(half)))?;
    let second = ok(backend.copy(Place { offset: half, ..from }, Place { offset: half, ..to }, Bytes(half)))?;
    if second <= first {
        return Err("tickets do not rise".to_owned());
    }
    backend.wait(second);
    if !backend.is_done(first) || !backend.is_done(second) {
        return Err("a copy that was waited for is not done".to_owned());
    }
    let mut found = vec![0; bytes as usize];
    ok(backend.read(to, &mut found))?;
    if found != pattern {
        return Err("a copy does not arrive as it left".to_owned());
    }
    refused(backend.copy(from, Place { offset: 1, ..from }, Bytes(half)).map(|_| ()), "a copy over itself")?;
    refused(backend.copy(from, Place { offset: half + 1, ..to }, Bytes(to_page)).map(|_| ()), "a copy past the end")?;
    ok(backend.release(from.region))?;
    ok(backend.release(to.region))
}
