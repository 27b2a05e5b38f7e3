//! The fuzz body of the description readers: no panic, bounded work, and whatever is accepted
//! survives being written and read again in both syntaxes.

use super::{Device, EngineKind, Precision};

/// Reads `text` as TOML and as JSON and checks what was accepted.
///
/// # Panics
/// When a law is broken; that is what a fuzzer looks for.
pub fn check(text: &str) {
    for read in [Device::from_toml(text), Device::from_json(text)] {
        match read {
            Ok(device) => check_device(&device),
            Err(error) => {
                let shown = error.to_string();
                assert!(!shown.is_empty());
                if let Some(position) = error.position {
                    let lines = text.matches('\n').count() + 1;
                    assert!(position.line <= lines.max(1) + 1, "{shown}: past the last line {lines}");
                }
            }
        }
    }
}

fn check_device(device: &Device) {
    let toml = device.to_toml();
    assert_eq!(Device::from_toml(&toml).as_ref(), Ok(device), "TOML:\n{toml}");
    let json = device.to_json().to_string();
    assert_eq!(Device::from_json(&json).as_ref(), Ok(device), "JSON:\n{json}");
    for row in device.figures() {
        assert_eq!(row.value.is_some(), row.origin.is_some(), "{}", row.path);
    }
    for kind in EngineKind::ALL {
        for precision in Precision::ALL {
            if let Ok(peak) = device.peak_operations(*kind, *precision) {
                assert!(peak.value.is_finite() && peak.value > 0.0);
            }
        }
    }
    for (id, space) in device.spaces() {
        if let Ok(usable) = device.usable(id) {
            assert!(space.capacity.known().is_none_or(|capacity| usable <= *capacity));
        }
        assert!(device.space_named(&space.name).is_some());
    }
}

/// Texts near `text`: `seed` decides which bytes are cut, doubled or replaced by other parts of it.
#[must_use]
pub fn mutate(text: &str, mut seed: u64) -> String {
    let mut next = |below: usize| {
        // Knuth's 64-bit linear congruential step; the high bits are the good ones.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below.max(1)
    };
    const WORDS: [&str; 16] = [
        "\"?\"",
        "0",
        "-1",
        "nan",
        "inf",
        "1e999",
        "18446744073709551616",
        "\"64\"",
        "\"64 KiB\"",
        "{",
        "]",
        "[[space]]",
        "\n",
        "true",
        "\u{feff}",
        "= {",
    ];
    let mut tokens: Vec<String> = text.split_inclusive([' ', '\n']).map(str::to_owned).collect();
    for _ in 0..=next(4) {
        if tokens.is_empty() {
            break;
        }
        let (at, from) = (next(tokens.len()), next(tokens.len()));
        match next(4) {
            0 => {
                tokens.remove(at);
            }
            1 => tokens[at] = tokens[from].clone(),
            2 => tokens[at] = WORDS[next(WORDS.len())].to_owned(),
            _ => tokens.truncate(at),
        }
    }
    tokens.concat()
}
