//! The few pieces of number theory that alignment needs.

/// Greatest common divisor; `gcd(0, x) = x`.
pub(crate) fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Lowest value not below `low` that is `residue` modulo `align`.
pub(crate) fn align_up(low: i64, align: i64, residue: i64) -> i64 {
    if align == 1 {
        return low;
    }
    low + (residue - low).rem_euclid(align)
}

/// Highest value not above `high` that is `residue` modulo `align`.
pub(crate) fn align_down(high: i64, align: i64, residue: i64) -> i64 {
    if align == 1 {
        return high;
    }
    high - (high - residue).rem_euclid(align)
}

/// The congruence that holds exactly when both do, as `(modulus, residue)`.
pub(crate) fn merge_congruence(a: (i64, i64), b: (i64, i64)) -> Option<(i64, i64)> {
    // Nothing asked or the same asked again: the common case, without a long division.
    if b == (1, 0) || a == b && (0..a.0).contains(&a.1) {
        return Some((a.0, a.1.rem_euclid(a.0)));
    }
    if a == (1, 0) && (0..b.0).contains(&b.1) {
        return Some(b);
    }
    let (m1, r1) = (i128::from(a.0), i128::from(a.1).rem_euclid(i128::from(a.0)));
    let (m2, r2) = (i128::from(b.0), i128::from(b.1).rem_euclid(i128::from(b.0)));
    let (g, p, _) = extended_gcd(m1, m2);
    if (r2 - r1) % g != 0 {
        return None;
    }
    let lcm = m1 / g * m2;
    // r1 + m1 * k = r2 mod m2, so k = (r2 - r1) / g * p mod (m2 / g)
    let k = ((r2 - r1) / g * p).rem_euclid(m2 / g);
    let r = (r1 + m1 * k).rem_euclid(lcm);
    Some((i64::try_from(lcm).ok()?, i64::try_from(r).ok()?))
}

fn extended_gcd(a: i128, b: i128) -> (i128, i128, i128) {
    let (mut old_r, mut r, mut old_s, mut s, mut old_t, mut t) = (a, b, 1, 0, 0, 1);
    while r != 0 {
        let q = old_r / r;
        (old_r, r) = (r, old_r - q * r);
        (old_s, s) = (s, old_s - q * s);
        (old_t, t) = (t, old_t - q * t);
    }
    (old_r, old_s, old_t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn congruences_merge_as_enumeration_says() {
        for m1 in 1..13 {
            for m2 in 1..13 {
                for r1 in 0..m1 {
                    for r2 in 0..m2 {
                        let found: Vec<i64> = (0..m1 * m2).filter(|x| x % m1 == r1 && x % m2 == r2).collect();
                        match merge_congruence((m1, r1), (m2, r2)) {
                            None => assert!(found.is_empty()),
                            Some((m, r)) => {
                                assert_eq!(found[0], r);
                                assert!(found.iter().all(|x| x % m == r));
                                assert_eq!(found.len() as i64, m1 * m2 / m);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn aligning_rounds_to_the_nearest_on_the_asked_side() {
        assert_eq!(align_up(5, 4, 0), 8);
        assert_eq!(align_up(8, 4, 0), 8);
        assert_eq!(align_up(0, 4, 3), 3);
        assert_eq!(align_down(5, 4, 0), 4);
        assert_eq!(align_down(2, 4, 3), -1);
    }
}
