//! Keeps the two queues on different processors, where there are two: a busy system otherwise wakes the copy thread on the
//! processor of the compute thread, and nothing runs beside anything.
#![allow(unsafe_code)]

/// Puts this thread on the last processor that the process may use, or on all others.
#[cfg(target_os = "linux")]
pub(super) fn keep_apart(last: bool) {
    // SAFETY: a set of processors is plain bits, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills at most the size that it is told; 0 is this thread.
    let outcome = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    let most = libc::CPU_SETSIZE as usize;
    // SAFETY: the numbers are below the size of the set.
    let mine: Vec<usize> = (0..most).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect();
    let (0, Some((end, others))) = (outcome, mine.split_last()) else { return };
    if others.is_empty() {
        return;
    }
    // SAFETY: as above; a refusal leaves the thread where it is.
    unsafe {
        libc::CPU_ZERO(&mut set);
        if last {
            libc::CPU_SET(*end, &mut set);
        } else {
            others.iter().for_each(|cpu| libc::CPU_SET(*cpu, &mut set));
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Elsewhere the system decides.
#[cfg(not(target_os = "linux"))]
pub(super) fn keep_apart(_last: bool) {}

/// Lets this thread, which was started by a queue's, run on processor `number` of all that there are.
#[cfg(target_os = "linux")]
pub(super) fn spread(number: usize) {
    // SAFETY: as in `keep_apart`; a processor that is not there, or not ours, is refused and nothing changes.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(number % libc::CPU_SETSIZE as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Elsewhere the system decides.
#[cfg(not(target_os = "linux"))]
pub(super) fn spread(_number: usize) {}
